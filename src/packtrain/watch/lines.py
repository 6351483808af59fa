"""A run told in plain lines, for logs and pipes: one line for what matters, none for the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from packtrain.events import FAILURE_KINDS, Event, kinds
from packtrain.watch import figures

_METRIC_EVERY_S = 5.0
_SPEECHLESS = frozenset(FAILURE_KINDS[kind].exit_code for kind in ("python_missing", "plan_unreadable"))


class Lines:
    """Remembers when each job last spoke of its training, so that a metric a step is no flood."""

    def __init__(self, jobs: int) -> None:
        self._prefix = jobs > 1
        self._spoke: dict[str, float] = {}

    def of(self, event: Event) -> str | None:
        teller = _TELLERS.get(event.kind)
        if teller is None or (event.kind == kinds.METRIC and not self._is_due(event)):
            return None
        text = teller(event.data)
        return f"[{event.job}] {text}" if text and event.job and self._prefix else text

    def _is_due(self, event: Event) -> bool:
        notable = any("accuracy" in key for key in event.data)
        if not notable and event.mono < self._spoke.get(event.emitter, float("-inf")) + _METRIC_EVERY_S:
            return False
        self._spoke[event.emitter] = event.mono
        return True


def stage_line(data: Mapping[str, Any]) -> str:
    """fetch: 170 MB in 1.2 s from https://…"""
    parts = [figures.size(data["bytes"]) if data.get("bytes") else "", _files(data)]
    counted = ", ".join(part for part in parts if part)
    took = f"in {figures.duration(data.get('seconds'))}"
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
    return f"attempt done in {figures.duration(data.get('seconds'))}"


def _attempt_gone(data: Mapping[str, Any]) -> str | None:
    """Only of an agent that could not say it itself."""
    code = data.get("exit_code")
    return data.get("detail") if code is not None and (code < 0 or code in _SPEECHLESS) else None


_TELLERS: dict[str, Callable[[Mapping[str, Any]], str | None]] = {
    kinds.ATTEMPT_STARTED: lambda data: f"started on {data.get('host')}",
    kinds.STAGE_ENDED: _stage_ended,
    kinds.STEP_ENDED: lambda data: f"step {data.get('step')}: exit code {data.get('exit_code')}",
    kinds.METRIC: figures.metric,
    kinds.NOTICE: lambda data: f"notice: {data.get('text')}",
    kinds.ATTEMPT_ENDED: _attempt_ended,
    kinds.ATTEMPT_GONE: _attempt_gone,
    kinds.JOB_ENDED: lambda data: f"{data.get('verdict')}: {data.get('reason')}",
}
