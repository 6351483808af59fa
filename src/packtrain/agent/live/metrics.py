"""Follows the metrics file that training programs append to, and makes events of its lines.

A program may write a thousand lines a second: of lines with the same names only the newest of each
fifth of a second becomes an event, so that the last values are never lost.
"""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path
from typing import Any

from packtrain.agent.context import AttemptContext
from packtrain.agent.watched_files import TailedFile
from packtrain.events import kinds

Metrics = dict[str, Any]

_POLL_INTERVAL_S = 0.2


class MetricsReader:
    """Reads new complete lines of a file that grows; what is no metric is counted."""

    def __init__(self, path: Path) -> None:
        self._file = TailedFile(path)
        self.n_ignored = 0

    def read(self, final: bool = False) -> list[Metrics]:
        """The newest line of each set of names since the last call; `last` takes an unfinished line, too."""
        parsed = [parse_metrics(line) for line in self._file.read_lines(final)]
        self.n_ignored += parsed.count(None)
        return list({tuple(sorted(metrics)): metrics for metrics in parsed if metrics}.values())


def parse_metrics(line: bytes) -> Metrics | None:
    """An object of numbers and texts, or None. NaN and infinities become texts: JSON has none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not all(isinstance(v, (int, float, str)) for v in found.values()):
        return None
    return {name: str(v) if isinstance(v, float) and not math.isfinite(v) else v for name, v in found.items()}


class MetricsFollower:
    """A thread for as long as the steps run: `with MetricsFollower(context): …`."""

    def __init__(self, context: AttemptContext) -> None:
        self._context = context
        self._reader = MetricsReader(context.sandbox.metrics_file)
        self.last_step: int | None = None  # the newest that was reported
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="metrics", daemon=True)

    def __enter__(self) -> MetricsFollower:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()

    def _follow(self) -> None:
        try:
            while not self._done.wait(_POLL_INTERVAL_S):
                self._emit(self._reader.read())
            self._emit(self._reader.read(final=True))
            self._report_ignored()
        except OSError as error:  # a full disk, say: the steps notice it themselves
            self._context.log.write(f"steps: the metrics file is no longer followed: {error}")

    def _emit(self, lines: list[Metrics]) -> None:
        for metrics in lines:
            step = metrics.get("step")
            self.last_step = step if type(step) is int else self.last_step
            self._context.journal.emit(kinds.METRIC, **metrics)

    def _report_ignored(self) -> None:
        if self._reader.n_ignored:
            text = f"{self._reader.n_ignored} lines of the metrics file are no JSON objects of numbers and were ignored"
            self._context.emit_notice("steps", text)
