"""All charts, of 0 to 1,000 jobs: valid, readable and consistent with the time accounting."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFont

from packtrain.report.analysis.statistics import compute_stats
from packtrain.report.analysis.time_accounting import TimeUse
from packtrain.report.charts import palette, timeline, wasted_transfers
from packtrain.report.charts.canvas import png, scales
from packtrain.report.charts.canvas.axes import spread_positions
from packtrain.report.charts.canvas.drawing import Drawing, RectMarks, TextMark, shorten_to_width, text_width
from packtrain.report.charts.canvas.svg import to_svg
from packtrain.report.charts.catalog import build_charts
from packtrain.report.charts.palette import EXECUTE, WASTED_TRANSFER
from packtrain.report.history import ExecutionRecord, FailureCategory, JobHistory, JobRecord, Outcome, Phase, PhaseSpan
from packtrain.report.readers.training_curves import TrainingCurve, TrainingCurves
from tests.support.histories import make_random_history
from tests.support.history_strategies import HOSTILE_TEXT, job_histories

no_deadline = settings(deadline=None)  # the machine may be busy
ALL_CHARTS = {
    "slot-hours",
    "timeline",
    "completion",
    "wasted-transfers",
    "failures",
    "compute-by-site",
    "site-hours",
    "transfer-speed",
}


@lru_cache
def charts_of(jobs, absolute=True, seed=0):
    history = make_random_history(jobs, seed, absolute=absolute)
    return build_charts(history, compute_stats(history), training_curves(min(jobs, 30)))


def training_curves(jobs):
    lines = [
        {"loss": tuple((s, 90 / (s + n + 1)) for s in range(50)), "accuracy": ((0, 0.1), (49, n / 40))}
        for n in range(jobs)
    ]
    return TrainingCurves(
        "run", "step", tuple(TrainingCurve(str(n), f"lr {n}", "succeeded", line) for n, line in enumerate(lines))
    )


def drawings(charts):
    return [(chart.name, drawing) for chart in charts for drawing in (chart.wide, chart.narrow)]


def texts_of(drawing):
    return [mark for mark in drawing.marks if isinstance(mark, TextMark)]


def overlap(first, second):
    (x1, y1, width1, height1), (x2, y2, width2, height2) = first.box, second.box
    return x1 < x2 + width2 and x2 < x1 + width1 and y1 < y2 + height2 and y2 < y1 + height1


def collisions(drawing):
    return [(a.text, b.text) for a, b in combinations(texts_of(drawing), 2) if a.text and b.text and overlap(a, b)]


def outside(drawing):
    boxes = [(mark.text, mark.box) for mark in texts_of(drawing)]
    return [
        text
        for text, (x, y, w, h) in boxes
        if x < -1 or x + w > drawing.width + 1 or y < -1 or y + h > drawing.height + 1
    ]


@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize("jobs", [0, 1, 10, 100, 1000])
def test_labels_do_not_overlap(jobs, absolute):
    for name, drawing in drawings(charts_of(jobs, absolute)):
        assert collisions(drawing) == [], (name, drawing.width)
        assert outside(drawing) == [], (name, drawing.width)


@pytest.mark.parametrize("jobs", [0, 1, 10, 1000])
def test_valid_svg(jobs):
    for _, drawing in drawings(charts_of(jobs)):
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(to_svg(drawing, "label")).iter()}
        assert tags <= {"svg", "path", "rect", "text", "title"}


def test_selected_charts():
    assert charts_of(0) == []
    assert {chart.name for chart in charts_of(1)} <= {"slot-hours", "timeline", "failures", "site-hours", "training"}
    assert {chart.name for chart in charts_of(1000)} == ALL_CHARTS | {"training"}


@settings(max_examples=30, deadline=None)
@given(job_histories())
def test_any_history(history):
    for name, drawing in drawings(build_charts(history, compute_stats(history))):
        ElementTree.fromstring(to_svg(drawing, HOSTILE_TEXT))
        assert collisions(drawing) == [], name
        assert all(
            math.isfinite(number)
            for mark in drawing.marks
            if isinstance(mark, RectMarks)
            for b in mark.boxes
            for number in b
        )
        assert all(
            box[2] >= 0 and box[3] >= 0 for mark in drawing.marks if isinstance(mark, RectMarks) for box in mark.boxes
        )


def test_hostile_names():
    span = PhaseSpan(Phase.EXECUTE, 0, 100)
    job = JobRecord(
        HOSTILE_TEXT,
        (
            ExecutionRecord(
                1, (span,), Outcome.FAILED, HOSTILE_TEXT, HOSTILE_TEXT, HOSTILE_TEXT, FailureCategory.PROGRAM
            ),
        ),
        Outcome.FAILED,
    )
    history = JobHistory(HOSTILE_TEXT, "log", (job,))
    charts = build_charts(history, compute_stats(history))
    assert charts
    for _, drawing in drawings(charts):
        for element in ElementTree.fromstring(to_svg(drawing, HOSTILE_TEXT)).iter():
            assert element.tag.rpartition("}")[2] in {"svg", "path", "rect", "text", "title"}
            assert not [name for name in element.attrib if name.startswith("on") or "href" in name]


# Consistency with the time accounting


def total_width(drawing, color):
    boxes = [box for mark in drawing.marks if isinstance(mark, RectMarks) and mark.color is color for box in mark.boxes]
    return sum(width for _, _, width, height in boxes if height != width)  # legend swatches are squares


def test_timeline_matches_time_accounting():
    history = make_random_history(30, seed=3)
    stats = compute_stats(history)
    drawing = timeline.draw_timeline(timeline.build_timeline_rows(history), 1040)
    compute, lost = stats.time_use_s[TimeUse.USEFUL_COMPUTE], stats.time_use_s[TimeUse.WASTED_TRANSFER]
    assert total_width(drawing, WASTED_TRANSFER) / total_width(drawing, EXECUTE) == pytest.approx(
        lost / compute, rel=0.02
    )


def test_wasted_transfer_in_timeline():
    spans = (PhaseSpan(Phase.TRANSFER_IN, 0, 3600),)
    retry_spans = (PhaseSpan(Phase.TRANSFER_IN, 4000, 5000), PhaseSpan(Phase.EXECUTE, 5000, 9000))
    executions = (
        ExecutionRecord(1, spans, Outcome.FAILED, category=FailureCategory.TRANSFER),
        ExecutionRecord(2, retry_spans, Outcome.SUCCEEDED),
    )
    row = timeline.build_timeline_rows(
        JobHistory("x", "log", (JobRecord("1", executions, Outcome.SUCCEEDED, 0, 9000),))
    ).rows[0]
    assert [bar.color.name for bar in row.bars] == ["wasted-transfer", "transfer", "execute"]
    assert timeline.format_tooltip(row, row.bars[0]) == "1 · execution 1 · wasted transfer 1 h"


def test_sampled_jobs():
    history = make_random_history(2500)
    stats = compute_stats(history)
    charts = {chart.name: chart for chart in build_charts(history, stats)}
    assert "Every third of 2,500 jobs is shown." in charts["timeline"].caption
    assert "Every third of" in charts["completion"].caption
    assert "At most 250 jobs per site" in charts["compute-by-site"].caption
    assert "2,500" in [mark.text for mark in texts_of(charts["timeline"].wide)]
    assert any(
        mark.text.startswith(f"{stats.succeeded_jobs:,} succeeded jobs") for mark in texts_of(charts["completion"].wide)
    )
    assert sum(len(to_svg(drawing)) for _, drawing in drawings(charts.values())) < 1_500_000


def test_count_majority():
    assert wasted_transfers.count_majority([("a", 80.0), ("b", 10.0), ("c", 10.0)]) == 1
    assert wasted_transfers.count_majority([("a", 50.0), ("b", 30.0), ("c", 20.0)]) == 2
    assert wasted_transfers.count_majority([]) == 0


def test_timeline_names():
    def texts(jobs):
        charts = {chart.name: chart for chart in charts_of(jobs)}
        return [mark.text for mark in texts_of(charts["timeline"].wide)]

    assert "794569.009" in texts(10)
    assert "1,000" in texts(1000)
    assert not [text for text in texts(1000) if text.startswith("7945")]


# Text, ticks and formats


@no_deadline
@given(
    st.text(st.characters(min_codepoint=32, max_codepoint=126) | st.sampled_from("·–—…×→≥éüΩ"), max_size=40),
    st.booleans(),
)
def test_text_width_is_an_upper_bound(text, bold):
    font = ImageFont.truetype(str(png._font_dir() / ("DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf")), 100)
    assert font.getlength(text) <= text_width(text, 100, bold) + 1


@no_deadline
@given(st.text(max_size=60), st.floats(0, 200))
def test_shorten_to_width(text, max_width):
    assert text_width(shorten_to_width(text, max_width)) <= max_width or shorten_to_width(text, max_width) == ""


def test_shorten_cuts_the_middle():
    assert shorten_to_width("gpu-node-17.cluster.example.org", 120) == "gpu-node…ple.org"


@no_deadline
@given(st.lists(st.floats(0, 100), max_size=6))
def test_spread_positions(positions):
    spread = spread_positions(positions, 15.0, 0.0, 100.0)
    assert all(upper - lower >= 15.0 - 1e-6 for lower, upper in pairwise(sorted(spread)))
    assert all(-1e-6 <= position <= 100.0 + 1e-6 for position in spread)


@no_deadline
@given(st.floats(1e-3, 1e10))
def test_time_ticks(max_s):
    ticks = scales.time_ticks(max_s)
    assert 2 <= len(ticks) <= 8
    assert ticks[0] == (0, "0")
    assert ticks[-2][0] < max_s <= ticks[-1][0] * (1 + 1e-9)
    assert len({label for _, label in ticks}) == len(ticks)


@no_deadline
@given(st.floats(1e-3, 1e12), st.floats(1, 1e9))
def test_log_ticks(low, times):
    ticks = scales.log_ticks(low, low * times)
    assert 2 <= len(ticks) <= 8
    assert ticks[0] <= low * (1 + 1e-6)
    assert ticks[-1] >= low * times * (1 - 1e-6)


# Files


def test_png_size(tmp_path):
    drawing = Drawing(200, 100)
    drawing.rect((0, 0, 50, 50), EXECUTE)
    png.save_png(drawing, "Title", tmp_path / "a.png")
    image = Image.open(tmp_path / "a.png").convert("RGB")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
    assert image.size == (480, 348)
    assert "#{:02x}{:02x}{:02x}".format(*image.getpixel((60, 130))) == EXECUTE.light


def test_all_charts_as_png(tmp_path):
    for chart in charts_of(10):
        png.save_png(chart.wide, chart.title, tmp_path / f"{chart.name}.png")
        assert (tmp_path / f"{chart.name}.png").read_bytes().startswith(b"\x89PNG")


# Colors


def linear(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


# Machado, Oliveira, Fernandes 2009: how people without one kind of cone perceive colors.
VISION = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


TO_XYZ = ((0.4339, 0.3762, 0.1899), (0.2126, 0.7152, 0.0722), (0.0177, 0.1095, 0.8728))  # for the D65 white point


def multiply(matrix, vector):
    return [sum(factor * value for factor, value in zip(row, vector, strict=True)) for row in matrix]


def lab(color, vision):
    """Return CIELAB coordinates, whose distances match perceived differences."""
    xyz = multiply(TO_XYZ, [max(0.0, value) for value in multiply(vision, linear(color))])
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colors_are_distinguishable(vision, theme):
    colors = {
        color.name: lab(getattr(color, theme), VISION[vision]) for color in (*palette.TIME_COLORS, palette.BACKGROUND)
    }
    distances = {(a, b): math.dist(colors[a], colors[b]) for a, b in combinations(colors, 2)}
    assert {pair: round(distance) for pair, distance in distances.items() if distance < 12} == {}


def test_each_meaning_has_one_color():
    assert len({color.name for color in palette.ALL_COLORS}) == len(palette.ALL_COLORS)
    assert set(palette.COLOR_BY_TIME_USE) == set(TimeUse)
    assert set(palette.COLOR_BY_CATEGORY) == set(FailureCategory)
    assert all(palette.color_of(phase, use) for phase in Phase for use in (None, *TimeUse))
