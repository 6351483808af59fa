"""Turn the lines that a training program appends to its metrics file into events.

A program may write a thousand lines per second. Of the lines with the same metric names, only the newest in each poll
interval becomes an event, so the last values are never lost.
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
    """Read new complete lines of the metrics file, and count the lines that are not metrics."""

    def __init__(self, path: Path) -> None:
        self._file = TailedFile(path)
        self.n_ignored = 0

    def read(self, final: bool = False) -> list[Metrics]:
        """Return the newest line of each set of metric names since the last call.

        Args:
            final: Also take an unfinished last line.
        """
        parsed = [parse_metrics(line) for line in self._file.read_lines(final)]
        self.n_ignored += parsed.count(None)
        return list({tuple(sorted(metrics)): metrics for metrics in parsed if metrics}.values())


def parse_metrics(line: bytes) -> Metrics | None:
    """Return a line as an object of numbers and strings, or None. NaN and infinities become strings for JSON."""
    try:
        metrics = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(metrics, dict) or not all(isinstance(v, (int, float, str)) for v in metrics.values()):
        return None
    return {name: str(v) if isinstance(v, float) and not math.isfinite(v) else v for name, v in metrics.items()}


class MetricsFollower:
    """Read the metrics file in a thread for the duration of a `with` block that runs the steps."""

    def __init__(self, context: AttemptContext) -> None:
        self._context = context
        self._reader = MetricsReader(context.sandbox.metrics_file)
        self.last_step: int | None = None  # the last training step that the program reported
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
        except OSError as error:  # for example a full disk, on which the steps fail by themselves
            self._context.log.write(f"steps: stopped reading the metrics file: {error}")

    def _emit(self, lines: list[Metrics]) -> None:
        for metrics in lines:
            step = metrics.get("step")
            self.last_step = step if type(step) is int else self.last_step
            self._context.journal.emit(kinds.METRIC, **metrics)

    def _report_ignored(self) -> None:
        if self._reader.n_ignored:
            text = f"ignored {self._reader.n_ignored} lines of the metrics file that are not JSON objects of numbers"
            self._context.emit_notice("steps", text)
