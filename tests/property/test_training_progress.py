"""What is known of a training, and its lines in a picture, depend on what was reported, not on how it was read."""

import math
import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from packtrain.events import Event, kinds
from packtrain.report.charts.smoothing import downsample, smooth_line
from packtrain.report.charts.training import spread_labels
from packtrain.state.training_progress import TrainingProgress

VALUES = st.one_of(st.integers(-5, 200), st.floats(), st.sampled_from(["nan", "inf", "-inf", "words"]), st.booleans())
NAMES = st.sampled_from(["step", "total_steps", "epoch", "epochs", "loss", "accuracy"])
REPORTS = st.lists(st.dictionaries(NAMES, VALUES), max_size=12)
LINES = st.lists(
    st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf]), max_size=300
).map(lambda values: [(float(step), value) for step, value in enumerate(values)])  # fmt: skip


def training_of(events):
    training = TrainingProgress()
    for event in events:
        training.add(event)
    return training


@given(REPORTS, st.randoms(use_true_random=False))
def test_order_and_repetition_change_nothing(reports, rnd: random.Random):
    events = [Event("r", "0", "a", seq, kinds.METRIC, 0.0, seq * 0.5, data) for seq, data in enumerate(reports, 1)]
    once = training_of(events)
    again = training_of(rnd.sample(events, len(events)) + events)
    assert repr((again.values, again.fraction, again.remaining_s)) == repr(
        (once.values, once.fraction, once.remaining_s)
    )
    assert once.fraction is None or 0 <= once.fraction <= 1
    assert once.remaining_s is None or once.remaining_s >= 0


@given(st.lists(st.floats(0, 1), max_size=20), st.floats(0.001, 0.2))
def test_names_are_spread_in_order_and_apart(places, apart):
    spots = spread_labels(places, apart)
    order = sorted(range(len(places)), key=lambda number: places[number])
    ordered = [spots[number] for number in order]
    assert all(high - low >= apart - 1e-9 for low, high in pairwise(ordered))
    assert math.isclose(sum(spots), sum(places), abs_tol=1e-6), "they move no further than they must"


@given(LINES, st.integers(1, 50))
def test_thinned_lines_keep_their_ends_and_bounds(line, most):
    thin = downsample(line, most)
    assert len(thin) <= most or thin == line
    assert bool(thin) == bool(line)
    finite = [value for _, value in line if math.isfinite(value)]
    kept = [value for _, value in thin if math.isfinite(value)]
    assert bool(kept) == bool(finite)
    assert all(min(finite) - 1e-6 <= value <= max(finite) + 1e-6 for value in kept)
    assert [step for step, _ in thin] == sorted(step for step, _ in thin)


@given(LINES)
def test_smoothed_lines_keep_their_steps_gaps_and_bounds(line):
    smooth = smooth_line(line)
    assert [step for step, _ in smooth] == [step for step, _ in line]
    finite = [value for _, value in line if math.isfinite(value)]
    for (_, before), (_, after) in zip(line, smooth, strict=True):
        assert math.isfinite(after) == math.isfinite(before)
        assert not math.isfinite(after) or min(finite) - 1e-3 <= after <= max(finite) + 1e-3
