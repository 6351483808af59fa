"""Numbers as text for people."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packtrain import formatting

MINUTE, HOUR, DAY = 60, 3600, 86400
UNITS_S = {"s": 1, "min": MINUTE, "h": HOUR, "d": DAY}
UNITS_BYTES = {unit: 1000**power for power, unit in enumerate(("B", "kB", "MB", "GB", "TB", "PB"))}
SECONDS = st.floats(0, 1e10)
BYTES = st.floats(0, 1e18)


def parse(text, units):
    """Return the value of `3 min 20 s`."""
    assert re.fullmatch(r"[\d,]+(\.\d)? [a-zA-Z]+( \d+ [a-z]+)?", text), text
    words = text.replace(",", "").split()
    return sum(float(number) * units[unit] for number, unit in zip(words[::2], words[1::2], strict=True))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "?"), (-3, "0 s"), (0, "0 s"), (0.25, "0.2 s"), (5, "5 s"), (9.96, "10 s"), (42, "42 s"), (59.9, "1 min"),
     (83, "1 min 23 s"), (200, "3 min 20 s"), (599.6, "10 min"), (2220, "37 min"), (3599, "1 h"), (4800, "1 h 20 min"),
     (17845, "4 h 57 min"), (130000, "36 h 7 min"), (2 * DAY - 20, "2 d"), (3.2 * DAY, "3 d 5 h"),
     (500 * DAY, "500 d")],
)  # fmt: skip
def test_format_duration(seconds, text):
    assert formatting.format_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (4800, "1 h 20 min"),
        (9.5 * HOUR, "9 h 30 min"),
        (10 * HOUR - 20, "10 h"),
        (99.6 * HOUR, "100 h"),
        (1234 * HOUR, "1,234 h"),
    ],
)
def test_format_slot_hours(seconds, text):
    assert formatting.format_slot_hours(seconds) == text


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [(None, "?"), (0, "0 B"), (999, "999 B"), (999.6, "1 kB"), (1400, "1.4 kB"), (5e9, "5 GB"), (170_498_071, "170 MB"),
     (999_499_999, "999 MB"), (999_500_000, "1 GB"), (2e15, "2 PB"), (4e18, "4,000 PB")],
)  # fmt: skip
def test_format_size(n_bytes, text):
    assert formatting.format_size(n_bytes) == text


def test_format_rate():
    assert formatting.format_rate(12_345_678) == "12.3 MB/s"


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0, "0%"), (0.0004, "<0.1%"), (0.012, "1.2%"), (0.04, "4%"), (0.0996, "10%"), (0.444, "44%"), (1, "100%")],
)
def test_format_percent(fraction, text):
    assert formatting.format_percent(fraction) == text


@given(SECONDS, SECONDS)
def test_durations_are_monotonic(first, second):
    low, high = (parse(formatting.format_duration(seconds), UNITS_S) for seconds in sorted((first, second)))
    assert low <= high


@given(BYTES, BYTES)
def test_sizes_are_monotonic(first, second):
    low, high = (parse(formatting.format_size(n_bytes), UNITS_BYTES) for n_bytes in sorted((first, second)))
    assert low <= high


@given(SECONDS)
def test_durations_are_close(seconds):
    assert parse(formatting.format_duration(seconds), UNITS_S) == pytest.approx(seconds, rel=0.05, abs=0.051)


@given(BYTES)
def test_sizes_are_close(n_bytes):
    assert parse(formatting.format_size(n_bytes), UNITS_BYTES) == pytest.approx(n_bytes, rel=0.05, abs=0.51)


@given(SECONDS)
def test_no_unit_of_a_duration_overflows(seconds):
    """There is no `60 s`, `60 min` or `1 d 24 h`."""
    counts = dict(reversed(pair) for pair in re.findall(r"([\d.]+) (s|min|h)", formatting.format_duration(seconds)))
    assert all(float(counts.get(unit, 0)) < limit for unit, limit in (("s", 60), ("min", 60), ("h", 48)))


@given(BYTES)
def test_no_unit_of_a_size_overflows(n_bytes):
    """There is no `1000 MB`."""
    number, unit = formatting.format_size(n_bytes).split()
    assert unit == "PB" or float(number.replace(",", "")) < 1000


@pytest.mark.parametrize(("number", "text"), [(0, "0 jobs"), (1, "1 job"), (1234, "1,234 jobs")])
def test_pluralize(number, text):
    assert formatting.pluralize(number, "job") == text


def test_format_wait():
    assert formatting.format_wait(1000.0, 1000.0 + 4800) == ", for 1 h 20 min"
    assert formatting.format_wait(1000.0, 1059.0) == formatting.format_wait(0.0, 1e9) == ""


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            {"images_per_s": 1834.4, "loss": 1.23456, "epoch": 2, "epochs": 5, "step": 30, "total_steps": 100},
            "epoch 2/5 · step 30/100 · loss 1.235 · 1,834 images/s",
        ),
        ({"accuracy": 0.456, "samples_per_second": 12, "lr": 0.1}, "accuracy 45.6% · lr 0.1 · 12 samples/s"),
        ({"loss": "nan", "images_per_s": "inf"}, "loss nan · images/s inf"),
        ({}, ""),
    ],
)
def test_format_metrics(data, expected):
    assert formatting.format_metrics(data) == expected


@pytest.mark.parametrize(
    ("fraction", "remaining_s", "expected"),
    [(None, None, ""), (0.4, None, "40%"), (0.4, 200.0, "40% · 3 min 20 s left"), (1.0, 0.0, "100%")],
)
def test_format_progress(fraction, remaining_s, expected):
    assert formatting.format_progress(fraction, remaining_s) == expected
