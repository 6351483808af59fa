"""The progress of a training depends only on the set of reports; charts keep the shape of its lines."""

import math
import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from packtrain.events import Event, kinds
from packtrain.report.charts.smoothing import downsample, smooth_line
from packtrain.report.charts.training import spread_labels
from packtrain.state.training_progress import TrainingProgress

VALUES = st.one_of(st.integers(-5, 200), st.floats(), st.sampled_from(["nan", "inf", "-inf", "text"]), st.booleans())
NAMES = st.sampled_from(["step", "total_steps", "epoch", "epochs", "loss", "accuracy"])
REPORTS = st.lists(st.dictionaries(NAMES, VALUES), max_size=12)
LINES = st.lists(
    st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf]), max_size=300
).map(lambda values: [(float(step), value) for step, value in enumerate(values)])  # fmt: skip


def build_training(events):
    training = TrainingProgress()
    for event in events:
        training.add(event)
    return training


@given(REPORTS, st.randoms(use_true_random=False))
def test_order_and_duplicates_change_nothing(reports, rng: random.Random):
    events = [Event("r", "0", "a", seq, kinds.METRIC, 0.0, seq * 0.5, data) for seq, data in enumerate(reports, 1)]
    expected = build_training(events)
    repeated = build_training(rng.sample(events, len(events)) + events)
    assert repr((repeated.values, repeated.fraction, repeated.remaining_s)) == repr(
        (expected.values, expected.fraction, expected.remaining_s)
    )
    assert expected.fraction is None or 0 <= expected.fraction <= 1
    assert expected.remaining_s is None or expected.remaining_s >= 0


@given(st.lists(st.floats(0, 1), max_size=20), st.floats(0.001, 0.2))
def test_labels_are_spread_in_order(positions, distance):
    spread = spread_labels(positions, distance)
    order = sorted(range(len(positions)), key=lambda number: positions[number])
    ordered = [spread[number] for number in order]
    assert all(high - low >= distance - 1e-9 for low, high in pairwise(ordered))
    assert math.isclose(sum(spread), sum(positions), abs_tol=1e-6), "labels move no further than necessary"


@given(LINES, st.integers(1, 50))
def test_downsampled_lines_keep_ends_and_bounds(line, max_points):
    thinned = downsample(line, max_points)
    assert len(thinned) <= max_points or thinned == line
    assert bool(thinned) == bool(line)
    finite = [value for _, value in line if math.isfinite(value)]
    kept_values = [value for _, value in thinned if math.isfinite(value)]
    assert bool(kept_values) == bool(finite)
    assert all(min(finite) - 1e-6 <= value <= max(finite) + 1e-6 for value in kept_values)
    assert [step for step, _ in thinned] == sorted(step for step, _ in thinned)


@given(LINES)
def test_smoothed_lines_keep_steps_gaps_and_bounds(line):
    smooth = smooth_line(line)
    assert [step for step, _ in smooth] == [step for step, _ in line]
    finite = [value for _, value in line if math.isfinite(value)]
    for (_, before), (_, after) in zip(line, smooth, strict=True):
        assert math.isfinite(after) == math.isfinite(before)
        assert not math.isfinite(after) or min(finite) - 1e-3 <= after <= max(finite) + 1e-3
