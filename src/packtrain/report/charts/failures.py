"""The chart of failures by category: failed jobs and failed executions."""

from __future__ import annotations

from collections.abc import Sequence

from packtrain.formatting import format_percent, format_slot_hours
from packtrain.report.analysis.statistics import FailureSummary, ReportStats
from packtrain.report.charts import palette
from packtrain.report.charts.canvas.axes import SMALL_FONT, label_column_width
from packtrain.report.charts.canvas.drawing import Drawing, shorten_to_width

_ROW, _HEAD = 34.0, 26.0


def draw_failures(stats: ReportStats, width: float) -> Drawing:
    groups = [group for group in (("jobs", stats.job_failures), ("executions", stats.execution_failures)) if group[1]]
    height = sum(_HEAD + _ROW * len(rows) + 10 for _, rows in groups)
    drawing = Drawing(width, max(height, 1.0))
    y = 0.0
    for level, rows in groups:
        y = _draw_group(drawing, level, rows, y) + 10
    return drawing


def _draw_group(drawing: Drawing, level: str, rows: Sequence[FailureSummary], top: float) -> float:
    total = sum(row.count for row in rows)
    noun = level[:-1] if total == 1 else level
    drawing.text(f"{total:,} {noun} did not succeed", 0, top + 13, size=12.5, bold=True)
    names = [shorten_to_width(row.category.value or "unknown", drawing.width * 0.3) for row in rows]
    labels = [_format_failure(row, level, drawing.width) for row in rows]
    left = label_column_width(names, drawing.width * 0.3, 12)
    room = drawing.width - left - label_column_width(labels, drawing.width / 2, SMALL_FONT)
    max_count = max(row.count for row in rows)
    for number, (row, name, label) in enumerate(zip(rows, names, labels, strict=True)):
        y = top + _HEAD + number * _ROW
        length = max(3.0, room * row.count / max_count)
        drawing.text(name, left - 10, y + 16, anchor="end")
        drawing.rect((left, y + 1, length, 22), palette.COLOR_BY_CATEGORY[row.category], f"{name}: {label}", rounded=3)
        drawing.muted_text(label, left + length + 8, y + 16, size=SMALL_FONT)
    return top + _HEAD + _ROW * len(rows)


def _format_failure(row: FailureSummary, level: str, width: float) -> str:
    """Return the label of a bar: 16 jobs · 76% · 12 h."""
    noun = level[:-1] if row.count == 1 else level
    label = f"{row.count:,} {noun} · {format_percent(row.fraction)}"
    return f"{label} · {format_slot_hours(row.slot_s)}" if width > 450 else label
