"""A run told in plain lines, for logs and pipes: one line for what matters, none for the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from packtrain import formatting
from packtrain.engines.api import Overrides
from packtrain.events import FAILURE_KINDS, Event, kinds
from packtrain.state.training_progress import TrainingProgress
from packtrain.views.explain import format_overrides

_METRIC_INTERVAL_S = 5.0
_EXIT_CODES_WITHOUT_JOURNAL = frozenset(FAILURE_KINDS[kind].exit_code for kind in ("python_missing", "plan_unreadable"))


class PlainFormatter:
    """Remembers when each agent last spoke of its training, so that a metric a step is no flood; and how fast it
    goes, so that each line can say when it will be done."""

    def __init__(self, n_jobs: int) -> None:
        self._show_job_prefix = n_jobs > 1
        self._last_metric_at: dict[str, float] = {}
        self._training: dict[str, TrainingProgress] = {}
        self._nonfinite_emitters: set[str] = set()

    def format_event(self, event: Event) -> str | None:
        if event.kind == kinds.METRIC:
            text = self._format_metric(event)
        else:
            teller = _FORMATTERS.get(event.kind)
            text = teller(event.data) if teller else None
        return f"[{event.job}] {text}" if text and event.job and self._show_job_prefix else text

    def _format_metric(self, event: Event) -> str | None:
        """epoch 2/5 · step 120/300 · loss 1.234 · 40% · 3 min 20 s left"""
        training = self._training.setdefault(event.emitter, TrainingProgress())
        training.add(event)
        if not self._should_print_metric(event):
            return None
        totals = {name: value for name, value in training.values.items() if name in ("epochs", "total_steps")}
        parts = (
            formatting.format_metrics({**totals, **event.data}),
            formatting.format_progress(training.fraction, training.remaining_s),
        )
        return " · ".join(part for part in parts if part)

    def _should_print_metric(self, event: Event) -> bool:
        notable = any("accuracy" in key for key in event.data) or self._is_first_nonfinite(event)
        if not notable and event.mono < self._last_metric_at.get(event.emitter, float("-inf")) + _METRIC_INTERVAL_S:
            return False
        self._last_metric_at[event.emitter] = event.mono
        return True

    def _is_first_nonfinite(self, event: Event) -> bool:
        """The first NaN of an attempt is worth a line of its own."""
        bad = any(value in formatting.NONFINITE_VALUES for value in event.data.values())
        first = bad and event.emitter not in self._nonfinite_emitters
        self._nonfinite_emitters |= {event.emitter} if bad else set()
        return first


def format_stage(stage: Mapping[str, Any]) -> str:
    """fetch: 170 MB in 1.2 s from https://…"""
    parts = [formatting.format_size(stage["bytes"]) if stage.get("bytes") else "", _format_file_count(stage)]
    counted = ", ".join(part for part in parts if part)
    took = f"in {formatting.format_duration(stage.get('seconds'))}"
    way = "to" if stage.get("stage") == "sync" else "from"
    place = f"{way} {str(stage['source']).removeprefix('file://')}" if stage.get("source") else ""
    return " ".join(part for part in (f"{stage.get('stage')}:", counted, took, place) if part)


def is_empty_stage(stage: Mapping[str, Any]) -> bool:
    """A stage that had nothing to do is not worth a line."""
    return stage.get("stage") in ("fetch", "unpack", "check", "sync") and not stage.get("files")


def _format_file_count(stage: Mapping[str, Any]) -> str:
    count = stage.get("files")
    return f"{count} file{'' if count == 1 else 's'}" if count else ""


def _format_stage_ended(data: Mapping[str, Any]) -> str | None:
    return None if data.get("failure") or is_empty_stage(data) else format_stage(data)


def _format_attempt_ended(data: Mapping[str, Any]) -> str:
    if data.get("failure"):
        return f"failed in the stage {data['failure'].get('stage')}: {data['failure'].get('detail')}"
    if data.get("outcome") == "requeued":
        return str(data.get("reason") or "left in time; another attempt goes on")
    return f"attempt done in {formatting.format_duration(data.get('seconds'))}"


def _format_attempt_gone(data: Mapping[str, Any]) -> str | None:
    """Only of an agent that could not say it itself."""
    code = data.get("exit_code")
    return data.get("detail") if code is not None and (code < 0 or code in _EXIT_CODES_WITHOUT_JOURNAL) else None


def _format_decision(data: Mapping[str, Any]) -> str | None:
    """What follows by itself needs no word; what is done otherwise than planned does."""
    if data.get("action") == "submit":
        amended = format_overrides(Overrides.from_data(data.get("overrides") or {}))
        return f"another attempt, {amended} ({data.get('reason')})" if amended else None
    words = {"release": "packtrain lets it go again", "give_up": "packtrain gives this attempt up"}
    said = words.get(str(data.get("action")))
    return f"{said}: {data.get('reason')}" if said else None


_FORMATTERS: dict[str, Callable[[Mapping[str, Any]], str | None]] = {
    kinds.AGENT_STARTED: lambda data: f"started on {data.get('host')}",
    kinds.STAGE_ENDED: _format_stage_ended,
    kinds.STEP_ENDED: lambda data: f"step {data.get('step')}: exit code {data.get('exit_code')}",
    kinds.CHECKPOINT_RESTORED: lambda data: f"goes on from the checkpoint of training step {data.get('step')}",
    kinds.NOTICE: lambda data: f"notice: {data.get('text')}",
    kinds.AGENT_ENDED: _format_attempt_ended,
    kinds.EXECUTION_STARTED: lambda data: f"the pool starts it at {data.get('site') or data.get('host')}",
    kinds.EXECUTION_INTERRUPTED: lambda data: f"{data.get('detail')}; it waits for its next start",
    kinds.ATTEMPT_HELD: lambda data: str(data.get("detail")),
    kinds.ATTEMPT_RELEASED: lambda data: "it is in the queue again",
    kinds.ATTEMPT_GONE: _format_attempt_gone,
    kinds.DECISION_MADE: _format_decision,
    kinds.JOB_ENDED: lambda data: f"{data.get('result')}: {data.get('reason')}",
}
