"""A run told in plain lines, for logs and pipes: one line for what matters, none for the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from packtrain import formatting
from packtrain.engines.api import Amendment
from packtrain.events import FAILURE_KINDS, Event, kinds
from packtrain.state.training_progress import Training
from packtrain.views.explain import amended_words

_METRIC_EVERY_S = 5.0
_SPEECHLESS = frozenset(FAILURE_KINDS[kind].exit_code for kind in ("python_missing", "plan_unreadable"))


class Lines:
    """Remembers when each agent last spoke of its training, so that a metric a step is no flood; and how fast it
    goes, so that each line can say when it will be done."""

    def __init__(self, jobs: int) -> None:
        self._prefix = jobs > 1
        self._spoke: dict[str, float] = {}
        self._training: dict[str, Training] = {}
        self._bad: set[str] = set()

    def of(self, event: Event) -> str | None:
        if event.kind == kinds.METRIC:
            text = self._metric(event)
        else:
            teller = _TELLERS.get(event.kind)
            text = teller(event.data) if teller else None
        return f"[{event.job}] {text}" if text and event.job and self._prefix else text

    def _metric(self, event: Event) -> str | None:
        """epoch 2/5 · step 120/300 · loss 1.234 · 40% · 3 min 20 s left"""
        training = self._training.setdefault(event.emitter, Training())
        training.add(event)
        if not self._is_due(event):
            return None
        totals = {name: value for name, value in training.values.items() if name in ("epochs", "total_steps")}
        parts = (formatting.metric({**totals, **event.data}), formatting.ahead(training.fraction, training.left_s))
        return " · ".join(part for part in parts if part)

    def _is_due(self, event: Event) -> bool:
        notable = any("accuracy" in key for key in event.data) or self._turns_bad(event)
        if not notable and event.mono < self._spoke.get(event.emitter, float("-inf")) + _METRIC_EVERY_S:
            return False
        self._spoke[event.emitter] = event.mono
        return True

    def _turns_bad(self, event: Event) -> bool:
        """The first NaN of an attempt is worth a line of its own."""
        bad = any(value in formatting.NOT_FINITE for value in event.data.values())
        first = bad and event.emitter not in self._bad
        self._bad |= {event.emitter} if bad else set()
        return first


def stage_line(data: Mapping[str, Any]) -> str:
    """fetch: 170 MB in 1.2 s from https://…"""
    parts = [formatting.size(data["bytes"]) if data.get("bytes") else "", _files(data)]
    counted = ", ".join(part for part in parts if part)
    took = f"in {formatting.duration(data.get('seconds'))}"
    way = "to" if data.get("stage") == "sync" else "from"
    place = f"{way} {str(data['source']).removeprefix('file://')}" if data.get("source") else ""
    return " ".join(part for part in (f"{data.get('stage')}:", counted, took, place) if part)


def is_idle(data: Mapping[str, Any]) -> bool:
    """A stage that had nothing to do is not worth a line."""
    return data.get("stage") in ("fetch", "unpack", "check", "sync") and not data.get("files")


def _files(data: Mapping[str, Any]) -> str:
    count = data.get("files")
    return f"{count} file{'' if count == 1 else 's'}" if count else ""


def _stage_ended(data: Mapping[str, Any]) -> str | None:
    return None if data.get("failure") or is_idle(data) else stage_line(data)


def _attempt_ended(data: Mapping[str, Any]) -> str:
    if data.get("failure"):
        return f"failed in the stage {data['failure'].get('stage')}: {data['failure'].get('detail')}"
    if data.get("outcome") == "continue":
        return str(data.get("reason") or "left in time; another attempt goes on")
    return f"attempt done in {formatting.duration(data.get('seconds'))}"


def _attempt_gone(data: Mapping[str, Any]) -> str | None:
    """Only of an agent that could not say it itself."""
    code = data.get("exit_code")
    return data.get("detail") if code is not None and (code < 0 or code in _SPEECHLESS) else None


def _decided(data: Mapping[str, Any]) -> str | None:
    """What follows by itself needs no word; what is done otherwise than planned does."""
    if data.get("action") == "submit":
        amended = amended_words(Amendment.from_data(data.get("amendment") or {}))
        return f"another attempt, {amended} ({data.get('reason')})" if amended else None
    words = {"release": "packtrain lets it go again", "give_up": "packtrain gives this attempt up"}
    said = words.get(str(data.get("action")))
    return f"{said}: {data.get('reason')}" if said else None


_TELLERS: dict[str, Callable[[Mapping[str, Any]], str | None]] = {
    kinds.ATTEMPT_STARTED: lambda data: f"started on {data.get('host')}",
    kinds.STAGE_ENDED: _stage_ended,
    kinds.STEP_ENDED: lambda data: f"step {data.get('step')}: exit code {data.get('exit_code')}",
    kinds.CHECKPOINT_RESTORED: lambda data: f"goes on from the checkpoint of training step {data.get('step')}",
    kinds.NOTICE: lambda data: f"notice: {data.get('text')}",
    kinds.ATTEMPT_ENDED: _attempt_ended,
    kinds.ATTEMPT_PLACED: lambda data: f"the pool starts it at {data.get('site') or data.get('host')}",
    kinds.ATTEMPT_STOPPED: lambda data: f"{data.get('detail')}; it waits for its next start",
    kinds.ATTEMPT_HELD: lambda data: str(data.get("detail")),
    kinds.ATTEMPT_RELEASED: lambda data: "it is in the queue again",
    kinds.ATTEMPT_GONE: _attempt_gone,
    kinds.DECIDED: _decided,
    kinds.JOB_ENDED: lambda data: f"{data.get('verdict')}: {data.get('reason')}",
}
