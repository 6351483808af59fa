"""The events of a run as lines of text, for logs and pipes. Unimportant events have no line."""

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


class EventLineFormatter:
    """Formats events as lines.

    It remembers when each agent last had a line with metrics, so that a program that logs every step does not flood the
    output, and the speed of each training, so that lines show the remaining time.

    Args:
        n_jobs: Number of jobs of the run. If there are several, lines begin with the job id.
    """

    def __init__(self, n_jobs: int) -> None:
        self._show_job_prefix = n_jobs > 1
        self._last_metric_at: dict[str, float] = {}  # by emitter, by the worker's monotonic clock
        self._training: dict[str, TrainingProgress] = {}  # by emitter
        self._nonfinite_emitters: set[str] = set()

    def format_event(self, event: Event) -> str | None:
        """Return the line for an event, or None if it has none."""
        if event.kind == kinds.METRIC:
            text = self._format_metric(event)
        else:
            formatter = _FORMATTERS.get(event.kind)
            text = formatter(event.data) if formatter else None
        return f"[{event.job}] {text}" if text and event.job and self._show_job_prefix else text

    def _format_metric(self, event: Event) -> str | None:
        """Return, for example, `epoch 2/5 · step 120/300 · loss 1.234 · 40% · 3 min 20 s left`."""
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
        is_notable = any("accuracy" in key for key in event.data) or self._is_first_nonfinite(event)
        if not is_notable and event.mono < self._last_metric_at.get(event.emitter, float("-inf")) + _METRIC_INTERVAL_S:
            return False
        self._last_metric_at[event.emitter] = event.mono
        return True

    def _is_first_nonfinite(self, event: Event) -> bool:
        """Return whether this is the agent's first NaN or infinity, which always gets a line."""
        is_nonfinite = any(value in formatting.NONFINITE_VALUES for value in event.data.values())
        is_first = is_nonfinite and event.emitter not in self._nonfinite_emitters
        self._nonfinite_emitters |= {event.emitter} if is_nonfinite else set()
        return is_first


def format_stage(stage: Mapping[str, Any]) -> str:
    """Return a line about a finished stage, for example `fetch: 170 MB in 1.2 s from https://…`."""
    parts = [formatting.format_size(stage["bytes"]) if stage.get("bytes") else "", _format_file_count(stage)]
    amount = ", ".join(part for part in parts if part)
    duration = f"in {formatting.format_duration(stage.get('seconds'))}"
    preposition = "to" if stage.get("stage") == "sync" else "from"
    source = f"{preposition} {str(stage['source']).removeprefix('file://')}" if stage.get("source") else ""
    return " ".join(part for part in (f"{stage.get('stage')}:", amount, duration, source) if part)


def is_empty_stage(stage: Mapping[str, Any]) -> bool:
    """Return whether a stage had nothing to do, so that it needs no line."""
    return stage.get("stage") in ("fetch", "unpack", "check", "sync") and not stage.get("files")


def _format_file_count(stage: Mapping[str, Any]) -> str:
    count = stage.get("files")
    return f"{count} file{'' if count == 1 else 's'}" if count else ""


def _format_stage_ended(data: Mapping[str, Any]) -> str | None:
    return None if data.get("failure") or is_empty_stage(data) else format_stage(data)


def _format_agent_ended(data: Mapping[str, Any]) -> str:
    if data.get("failure"):
        return f"failed in the stage {data['failure'].get('stage')}: {data['failure'].get('detail')}"
    if data.get("outcome") == "requeued":
        return str(data.get("reason") or "saved a checkpoint and exited; the next execution resumes from it")
    return f"finished in {formatting.format_duration(data.get('seconds'))}"


def _format_attempt_gone(data: Mapping[str, Any]) -> str | None:
    """Return the engine's message only if the agent could not report its end itself."""
    code = data.get("exit_code")
    return data.get("detail") if code is not None and (code < 0 or code in _EXIT_CODES_WITHOUT_JOURNAL) else None


def _format_decision(data: Mapping[str, Any]) -> str | None:
    """Return a line for decisions about holds, and for retries that change resources or sites."""
    if data.get("action") == "submit":
        overrides = format_overrides(Overrides.from_data(data.get("overrides") or {}))
        return f"submitting another attempt {overrides} ({data.get('reason')})" if overrides else None
    actions = {"release": "releasing the held attempt", "give_up": "giving up this attempt"}
    action = actions.get(str(data.get("action")))
    return f"{action}: {data.get('reason')}" if action else None


_FORMATTERS: dict[str, Callable[[Mapping[str, Any]], str | None]] = {
    kinds.AGENT_STARTED: lambda data: f"started on {data.get('host')}",
    kinds.STAGE_ENDED: _format_stage_ended,
    kinds.STEP_ENDED: lambda data: f"step {data.get('step')}: exit code {data.get('exit_code')}",
    kinds.CHECKPOINT_RESTORED: lambda data: f"resuming from the checkpoint of training step {data.get('step')}",
    kinds.NOTICE: lambda data: f"notice: {data.get('text')}",
    kinds.AGENT_ENDED: _format_agent_ended,
    kinds.EXECUTION_STARTED: lambda data: f"the pool started it at {data.get('site') or data.get('host')}",
    kinds.EXECUTION_INTERRUPTED: lambda data: f"{data.get('detail')}; queued again",
    kinds.ATTEMPT_HELD: lambda data: str(data.get("detail")),
    kinds.ATTEMPT_RELEASED: lambda data: "released; queued again",
    kinds.ATTEMPT_GONE: _format_attempt_gone,
    kinds.DECISION_MADE: _format_decision,
    kinds.JOB_ENDED: lambda data: f"{data.get('result')}: {data.get('reason')}",
}
