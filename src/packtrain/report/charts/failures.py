"""What failed, by its kind: jobs that were lost, and attempts that cost a job another one. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from packtrain.report.analysis.statistics import FailureFigures, Figures
from packtrain.report.charts import palette
from packtrain.report.charts.canvas.axes import SMALL, room_for
from packtrain.report.charts.canvas.drawing import Drawing, fitted
from packtrain.report.number_format import hours_words, percent_words

_ROW, _HEAD = 34.0, 26.0


def draw_failures(figures: Figures, width: float) -> Drawing:
    groups = [group for group in (("jobs", figures.failures), ("attempts", figures.troubles)) if group[1]]
    height = sum(_HEAD + _ROW * len(rows) + 10 for _, rows in groups)
    drawing = Drawing(width, max(height, 1.0))
    y = 0.0
    for what, rows in groups:
        y = _draw_group(drawing, what, rows, y) + 10
    return drawing


def _draw_group(drawing: Drawing, what: str, rows: Sequence[FailureFigures], top: float) -> float:
    total = sum(row.count for row in rows)
    one = what[:-1] if total == 1 else what
    drawing.words(f"{total:,} {one} did not succeed", 0, top + 13, size=12.5, bold=True)
    names = [fitted(row.category.value or "unknown", drawing.width * 0.3) for row in rows]
    told = [_told(row, what, drawing.width) for row in rows]
    left = room_for(names, drawing.width * 0.3, 12)
    room = drawing.width - left - room_for(told, drawing.width / 2, SMALL)
    most = max(row.count for row in rows)
    for number, (row, name, words) in enumerate(zip(rows, names, told, strict=True)):
        y = top + _HEAD + number * _ROW
        length = max(3.0, room * row.count / most)
        drawing.words(name, left - 10, y + 16, anchor="end")
        drawing.tile((left, y + 1, length, 22), palette.OF_CATEGORY[row.category], f"{name}: {words}", rounded=3)
        drawing.note(words, left + length + 8, y + 16, size=SMALL)
    return top + _HEAD + _ROW * len(rows)


def _told(row: FailureFigures, what: str, width: float) -> str:
    """16 jobs · 76% · 12 h"""
    one = what[:-1] if row.count == 1 else what
    told = f"{row.count:,} {one} · {percent_words(row.fraction)}"
    return f"{told} · {hours_words(row.seconds)}" if width > 450 else told
