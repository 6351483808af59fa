"""A chart of all arms, drawn with the report's timeline: one row per job, the same time axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.week.fault_schedule import HOUR_S
from packtrain.report.charts.canvas.png import save_png
from packtrain.report.charts.timeline import TimelineRows, build_timeline_rows, draw_timeline
from packtrain.report.history import ExecutionRecord, JobHistory, JobRecord, PhaseSpan

_WIDTH_PX = 1100.0
_TITLE = "One week, three ways: {}"


def save_chart(arms: Mapping[str, JobHistory], hour_s: float, path: Path) -> None:
    """Save the chart. `hour_s`: seconds per replayed hour."""
    blocks = [build_timeline_rows(rescale_history(history, hour_s)).rows for history in arms.values()]
    rows = [row for block in blocks for row in block]
    names = [f"rows {_row_range(blocks, number)} {name}" for number, name in enumerate(arms)]
    save_png(draw_timeline(TimelineRows(rows, 1, len(rows), True), _WIDTH_PX), _TITLE.format(", ".join(names)), path)


def _row_range(blocks: Sequence[Sequence[object]], number: int) -> str:
    first = sum(map(len, blocks[:number]))
    return f"{first + 1}-{first + len(blocks[number])}"


def rescale_history(history: JobHistory, hour_s: float) -> JobHistory:
    """Return the history in the time of the published week, starting at 0."""
    spans = [
        span
        for job in history.jobs
        for span in (*job.waits, *(span for execution in job.executions for span in execution.spans))
    ]
    scale = _TimeScale(min((span.start for span in spans), default=0.0), HOUR_S / hour_s)
    return replace(history, jobs=tuple(scale.scale_job(job) for job in history.jobs))


class _TimeScale:
    """Maps times of the replay to times of the published week."""

    def __init__(self, started_at: float, factor: float) -> None:
        self._started_at, self._factor = started_at, factor

    def scale_job(self, job: JobRecord) -> JobRecord:
        executions = tuple(self._scale_execution(execution) for execution in job.executions)
        return replace(job, executions=executions, waits=tuple(map(self._scale_span, job.waits)))

    def _scale_execution(self, execution: ExecutionRecord) -> ExecutionRecord:
        transfers = tuple(
            replace(transfer, start=self._scale_time(transfer.start), duration_s=transfer.duration_s * self._factor)
            for transfer in execution.input_transfers
        )
        spans = tuple(map(self._scale_span, execution.spans))
        return replace(
            execution,
            spans=spans,
            input_transfers=transfers,
            retained_compute_s=execution.retained_compute_s * self._factor,
        )

    def _scale_span(self, span: PhaseSpan) -> PhaseSpan:
        return replace(span, start=self._scale_time(span.start), end=self._scale_time(span.end))

    def _scale_time(self, moment: float) -> float:
        return (moment - self._started_at) * self._factor
