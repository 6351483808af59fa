"""Every picture, of no job, of one, of ten, of a thousand: valid, readable, and true to the accounts."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFont

from packtrain.report import number_format
from packtrain.report.analysis.statistics import compute_stats
from packtrain.report.analysis.time_accounting import TimeUse
from packtrain.report.charts import lost_transfers, palette, timeline
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

unhurried = settings(deadline=None)  # on a machine that is busy
ALL = {"hours", "timeline", "completion", "stalls", "failures", "sites", "site-hours", "transfers"}


@lru_cache
def gallery(jobs, absolute=True, seed=0):
    history = make_random_history(jobs, seed, absolute=absolute)
    return build_charts(history, compute_stats(history), training(min(jobs, 30)))


def training(jobs):
    lines = [
        {"loss": tuple((s, 90 / (s + n + 1)) for s in range(50)), "accuracy": ((0, 0.1), (49, n / 40))}
        for n in range(jobs)
    ]
    return TrainingCurves(
        "run", "step", tuple(TrainingCurve(str(n), f"lr {n}", "succeeded", line) for n, line in enumerate(lines))
    )


def drawings(pictures):
    return [(picture.name, drawing) for picture in pictures for drawing in (picture.wide, picture.narrow)]


def words_of(drawing):
    return [mark for mark in drawing.marks if isinstance(mark, TextMark)]


def overlaps(one, other):
    (x, y, width, height), (left, top, wide, high) = one.box, other.box
    return x < left + wide and left < x + width and y < top + high and top < y + height


def collisions(drawing):
    return [(a.text, b.text) for a, b in combinations(words_of(drawing), 2) if a.text and b.text and overlaps(a, b)]


def outside(drawing):
    boxes = [(mark.text, mark.box) for mark in words_of(drawing)]
    return [
        text
        for text, (x, y, w, h) in boxes
        if x < -1 or x + w > drawing.width + 1 or y < -1 or y + h > drawing.height + 1
    ]


@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize("jobs", [0, 1, 10, 100, 1000])
def test_labels_never_collide_and_stay_on_the_sheet(jobs, absolute):
    for name, drawing in drawings(gallery(jobs, absolute)):
        assert collisions(drawing) == [], (name, drawing.width)
        assert outside(drawing) == [], (name, drawing.width)


@pytest.mark.parametrize("jobs", [0, 1, 10, 1000])
def test_every_picture_is_valid_xml_of_plain_shapes(jobs):
    for _, drawing in drawings(gallery(jobs)):
        found = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(to_svg(drawing, "what")).iter()}
        assert found <= {"svg", "path", "rect", "text", "title"}


def test_which_pictures_there_are():
    assert gallery(0) == []
    assert {picture.name for picture in gallery(1)} <= {"hours", "timeline", "failures", "site-hours", "training"}
    assert {picture.name for picture in gallery(1000)} == ALL | {"training"}


@settings(max_examples=30, deadline=None)
@given(job_histories())
def test_of_any_history_pictures_can_be_drawn(history):
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


def test_a_name_cannot_become_a_script():
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
    pictures = build_charts(history, compute_stats(history))
    assert pictures
    for _, drawing in drawings(pictures):
        for element in ElementTree.fromstring(to_svg(drawing, HOSTILE_TEXT)).iter():
            assert element.tag.rpartition("}")[2] in {"svg", "path", "rect", "text", "title"}
            assert not [name for name in element.attrib if name.startswith("on") or "href" in name]


# What they show is what the accounts say


def area(drawing, paint):
    boxes = [box for mark in drawing.marks if isinstance(mark, RectMarks) and mark.color is paint for box in mark.boxes]
    return sum(width for _, _, width, height in boxes if height != width)  # swatches of legends are squares


def test_the_time_line_is_as_long_as_the_accounts_say():
    history = make_random_history(30, seed=3)
    figures = compute_stats(history)
    drawing = timeline.draw_timeline(timeline.build_timeline_rows(history), 1040)
    compute, lost = figures.time_use_s[TimeUse.USEFUL_COMPUTE], figures.time_use_s[TimeUse.WASTED_TRANSFER]
    assert area(drawing, WASTED_TRANSFER) / area(drawing, EXECUTE) == pytest.approx(lost / compute, rel=0.02)


def test_a_transfer_that_was_thrown_away_is_not_drawn_like_one_of_use():
    spans = (PhaseSpan(Phase.TRANSFER_IN, 0, 3600),)
    again = (PhaseSpan(Phase.TRANSFER_IN, 4000, 5000), PhaseSpan(Phase.EXECUTE, 5000, 9000))
    attempts = (
        ExecutionRecord(1, spans, Outcome.FAILED, category=FailureCategory.TRANSFER),
        ExecutionRecord(2, again, Outcome.SUCCEEDED),
    )
    row = timeline.build_timeline_rows(
        JobHistory("x", "log", (JobRecord("1", attempts, Outcome.SUCCEEDED, 0, 9000),))
    ).rows[0]
    assert [piece.color.name for piece in row.bars] == ["thrown-away", "transfer", "execute"]
    assert timeline.format_tooltip(row, row.bars[0]) == "1 · attempt 1 · transfer thrown away 1 h"


def test_thousands_of_jobs_are_thinned_and_the_caption_says_so():
    history = make_random_history(2500)
    figures = compute_stats(history)
    pictures = {picture.name: picture for picture in build_charts(history, figures)}
    assert "Of 2,500 jobs every third is shown." in pictures["timeline"].caption
    assert "jobs every third is shown." in pictures["completion"].caption
    assert "250 jobs of a site are shown" in pictures["sites"].caption
    assert "2,500" in [mark.text for mark in words_of(pictures["timeline"].wide)]
    assert any(
        mark.text.startswith(f"{figures.succeeded_jobs:,} jobs") for mark in words_of(pictures["completion"].wide)
    )
    assert sum(len(to_svg(drawing)) for _, drawing in drawings(pictures.values())) < 1_500_000


def test_few_jobs_that_lost_most_are_counted():
    assert lost_transfers.count_majority([("a", 80.0), ("b", 10.0), ("c", 10.0)]) == 1
    assert lost_transfers.count_majority([("a", 50.0), ("b", 30.0), ("c", 20.0)]) == 2
    assert lost_transfers.count_majority([]) == 0


def test_few_jobs_are_named_and_many_are_counted():
    def texts(jobs):
        pictures = {picture.name: picture for picture in gallery(jobs)}
        return [mark.text for mark in words_of(pictures["timeline"].wide)]

    assert "794569.009" in texts(10)
    assert "1,000" in texts(1000)
    assert not [text for text in texts(1000) if text.startswith("7945")]


# What they are made of


@unhurried
@given(
    st.text(st.characters(min_codepoint=32, max_codepoint=126) | st.sampled_from("·–—…×→≥éüΩ"), max_size=40),
    st.booleans(),
)
def test_words_are_never_wider_than_the_room_that_they_are_given(text, bold):
    font = ImageFont.truetype(str(png._font_dir() / ("DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf")), 100)
    assert font.getlength(text) <= text_width(text, 100, bold) + 1


@unhurried
@given(st.text(max_size=60), st.floats(0, 200))
def test_names_are_cut_to_their_room(text, room):
    assert text_width(shorten_to_width(text, room)) <= room or shorten_to_width(text, room) == ""


def test_the_middle_of_a_long_name_goes():
    assert shorten_to_width("gpu-node-17.cluster.example.org", 120) == "gpu-node…ple.org"


@unhurried
@given(st.lists(st.floats(0, 100), max_size=6))
def test_labels_settle_apart_within_their_range(places):
    spots = spread_positions(places, 15.0, 0.0, 100.0)
    assert all(later - sooner >= 15.0 - 1e-6 for sooner, later in zip(sorted(spots), sorted(spots)[1:], strict=False))
    assert all(-1e-6 <= spot <= 100.0 + 1e-6 for spot in spots)


@unhurried
@given(st.floats(1e-3, 1e10))
def test_times_beside_an_axis_are_few_and_reach_the_longest(longest):
    ticks = scales.time_ticks(longest)
    assert 2 <= len(ticks) <= 8
    assert ticks[0] == (0, "0")
    assert ticks[-2][0] < longest <= ticks[-1][0] * (1 + 1e-9)
    assert len({label for _, label in ticks}) == len(ticks)


@unhurried
@given(st.floats(1e-3, 1e12), st.floats(1, 1e9))
def test_values_beside_a_logarithmic_axis_enclose_the_range(low, times):
    ticks = scales.log_ticks(low, low * times)
    assert 2 <= len(ticks) <= 8
    assert ticks[0] <= low * (1 + 1e-6)
    assert ticks[-1] >= low * times * (1 - 1e-6)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0 s"), (0.25, "0.25 s"), (42, "42 s"), (59.9, "1 min"),
     (83, "1 min 23 s"), (569, "9 min 29 s"), (570, "10 min"), (2220, "37 min"), (3599, "1 h"),
     (17845, "4 h 57 min"), (130000, "36 h 7 min"), (3600 * 761, "761 h"), (86400 * 500, "500 d")],
)  # fmt: skip
def test_times_in_words(seconds, told):
    assert number_format.format_duration_coarse(seconds) == told


@pytest.mark.parametrize(
    ("share", "told"), [(0, "0%"), (0.0004, "<0.1%"), (0.012, "1.2%"), (0.444, "44%"), (1, "100%")]
)
def test_parts_in_words(share, told):
    assert number_format.format_percent(share) == told


# Files


def test_a_png_has_twice_the_pixels_and_leaves_nothing_else(tmp_path):
    drawing = Drawing(200, 100)
    drawing.rect((0, 0, 50, 50), EXECUTE)
    png.save_png(drawing, "Title", tmp_path / "a.png")
    image = Image.open(tmp_path / "a.png").convert("RGB")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
    assert image.size == (480, 348)
    assert "#{:02x}{:02x}{:02x}".format(*image.getpixel((60, 130))) == EXECUTE.light


def test_all_marks_of_all_pictures_become_png(tmp_path):
    for picture in gallery(10):
        png.save_png(picture.wide, picture.title, tmp_path / f"{picture.name}.png")
        assert (tmp_path / f"{picture.name}.png").read_bytes().startswith(b"\x89PNG")


# Colours


def linear(colour):
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


# Machado, Oliveira, Fernandes 2009: how people without one kind of cone see colours.
SEEN_BY = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


TO_XYZ = ((0.4339, 0.3762, 0.1899), (0.2126, 0.7152, 0.0722), (0.0177, 0.1095, 0.8728))  # of the white of D65


def times(matrix, vector):
    return [sum(factor * value for factor, value in zip(row, vector, strict=True)) for row in matrix]


def lab(colour, seen):
    """As far apart as colours look, so far apart these are."""
    xyz = times(TO_XYZ, [max(0.0, value) for value in times(seen, linear(colour))])
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("eyes", SEEN_BY)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_colour_blind_can_tell_meanings_apart(eyes, theme):
    seen = {
        paint.name: lab(getattr(paint, theme), SEEN_BY[eyes]) for paint in (*palette.TIME_COLORS, palette.BACKGROUND)
    }
    near = {(a, b): math.dist(seen[a], seen[b]) for a, b in combinations(seen, 2)}
    assert {pair: round(distance) for pair, distance in near.items() if distance < 12} == {}


def test_each_meaning_has_one_colour():
    assert len({paint.name for paint in palette.ALL_COLORS}) == len(palette.ALL_COLORS)
    assert set(palette.COLOR_BY_TIME_USE) == set(TimeUse)
    assert set(palette.COLOR_BY_CATEGORY) == set(FailureCategory)
    assert all(palette.color_of(phase, share) for phase in Phase for share in (None, *TimeUse))
