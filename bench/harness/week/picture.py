"""The arms in one picture, by the report's own means: one row a job, the same hours for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.week.fault_schedule import HOUR_S
from packtrain.report.charts.canvas.png import save_png
from packtrain.report.charts.timeline import Rows, draw_timeline, rows_of
from packtrain.report.history import Attempt, History, Job, Span

_WIDTH = 1100.0
_TITLE = "One week, three ways: {}"


def save(arms: Mapping[str, History], hour: float, path: Path) -> None:
    """`hour`: the seconds that an hour took in them."""
    blocks = [rows_of(in_hours(history, hour)).shown for history in arms.values()]
    rows = [row for block in blocks for row in block]
    names = [f"rows {_reach(blocks, number)} {name}" for number, name in enumerate(arms)]
    save_png(draw_timeline(Rows(rows, 1, len(rows), True), _WIDTH), _TITLE.format(", ".join(names)), path)


def _reach(blocks: Sequence[Sequence[object]], number: int) -> str:
    first = sum(map(len, blocks[:number]))
    return f"{first + 1}-{first + len(blocks[number])}"


def in_hours(history: History, hour: float) -> History:
    """With the times of the week that it replays, from 0 on."""
    spans = [span for job in history.jobs for span in (*job.waits, *(s for a in job.attempts for s in a.spans))]
    clock = _Clock(min((span.start for span in spans), default=0.0), HOUR_S / hour)
    return replace(history, jobs=tuple(clock.job(job) for job in history.jobs))


class _Clock:
    def __init__(self, began: float, factor: float) -> None:
        self._began, self._factor = began, factor

    def job(self, job: Job) -> Job:
        attempts = tuple(self._attempt(attempt) for attempt in job.attempts)
        return replace(job, attempts=attempts, waits=tuple(map(self._span, job.waits)))

    def _attempt(self, attempt: Attempt) -> Attempt:
        moves = tuple(
            replace(move, start=self._at(move.start), seconds=move.seconds * self._factor) for move in attempt.moves
        )
        spans = tuple(map(self._span, attempt.spans))
        return replace(attempt, spans=spans, moves=moves, kept_s=attempt.kept_s * self._factor)

    def _span(self, span: Span) -> Span:
        return replace(span, start=self._at(span.start), end=self._at(span.end))

    def _at(self, moment: float) -> float:
        return (moment - self._began) * self._factor
