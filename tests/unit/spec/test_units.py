"""Durations and sizes with units."""

import pytest

from packtrain.spec import units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("20h", 72000), ("1h30m", 5400), ("1.5h", 5400), ("2 d", 172800), ("1W", 604800)],
)
def test_parse_duration(text, seconds):
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("0", 0),
        ("500", 500),
        ("50GB", 50 * 10**9),
        ("50 gb", 50 * 10**9),
        ("1KiB", 1024),
        ("1.5M", 1_500_000),
        ("2TiB", 2 * 2**40),
    ],
)
def test_parse_size(text, n_bytes):
    assert units.parse_size(text) == n_bytes


@pytest.mark.parametrize("text", ["", "h", "3 parsecs", "-5m", "1h-3m", "٣h"])
def test_bad_durations(text):
    with pytest.raises(ValueError, match="is not a duration; write for example"):
        units.parse_duration(text)


@pytest.mark.parametrize("text", ["", "GB", "5 apples", "-1GB", "1e9", "٣GB"])
def test_bad_sizes(text):
    with pytest.raises(ValueError, match="is not a size; write for example"):
        units.parse_size(text)


def test_parse_megabytes():
    assert units.parse_megabytes("2048") == 2048
    assert units.parse_megabytes("4GB") == 4000


@pytest.mark.parametrize(
    ("n_bytes", "expected"), [(2**30, "1GiB"), (1536 << 20, "1536MiB"), (3 << 40, "3TiB"), (1000, 1000)]
)
def test_to_workflow_size(n_bytes, expected):
    assert units.to_workflow_size(n_bytes) == expected
    assert units.parse_size(str(expected)) == n_bytes
