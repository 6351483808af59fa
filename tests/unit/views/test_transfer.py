"""Transfers, rendered, as plain lines, and as totals."""

from __future__ import annotations

import pytest

from packtrain.transfer.progress import SourceRate
from packtrain.views.terminal import make_console
from packtrain.views.transfer import (
    RateMeter,
    TransferTotals,
    TransferView,
    format_totals,
    format_transfer,
    render_transfer,
)

SOURCES = (SourceRate("cache.example:8443", 80e6, 6, False), SourceRate("origin.example", 0.0, 0, True))


def render(view, width=120):
    console = make_console(width=width, force_terminal=False)
    with console.capture() as captured:
        console.print(render_transfer(view))
    return captured.get()


def test_render_transfer():
    text = render(TransferView("fetch", "data.tar", 1_200_000_000, 5_000_000_000, 100e6, SOURCES))
    assert "data.tar" in text
    assert "1.2 GB of 5 GB · 24% · 100 MB/s · 38 s left" in text
    assert "cache.example:8443  80 MB/s  6 connections" in text
    assert "origin.example  backing off" in text


def test_number_of_sources_is_limited():
    sources = tuple(SourceRate(f"host{number}", 1e6, 1, False) for number in range(20))
    text = render(TransferView("fetch", "x", 1, 2, 1.0, sources))
    assert "host7" in text
    assert "host8" not in text
    assert "and 12 more sources" in text


def test_markup_is_escaped():
    assert "a[bold]b.tar" in render(TransferView("fetch", "a[bold]b.tar", 1, 2))


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (TransferView("fetch", "x"), "x: fetch 0 B"),
        (TransferView("fetch", "x", 5, 0, 1.0), "x: fetch 5 B · 1 B/s · 0 s left"),
        (TransferView("fetch", "x", 500, None, 100.0), "x: fetch 500 B · 100 B/s"),
        (TransferView("fetch", "x", 500, 1000, 0.0), "x: fetch 500 B of 1 kB · 50% · 0 B/s"),
        (
            TransferView("fetch", "x", 500, 1000, 100.0, SOURCES),
            "x: fetch 500 B of 1 kB · 50% · 100 B/s · 5 s left"
            " · from cache.example:8443 80 MB/s, origin.example backing off",
        ),
    ],
)
def test_format_transfer(view, expected):
    assert format_transfer(view) == expected


def test_rate_of_last_seconds():
    meter = RateMeter()
    assert meter.add(0.0, 0) is None
    assert meter.add(1.0, 1000) == 1000
    for second in range(2, 20):
        rate = meter.add(float(second), 1000 + (second - 1) * 10)
    assert rate == pytest.approx(10)


def test_meter_restarts_with_transfer():
    meter = RateMeter()
    meter.add(0.0, 5000)
    assert meter.add(1.0, 0) is None
    assert meter.add(2.0, 100) == 100


def test_meter_keeps_few_samples():
    meter = RateMeter()
    for step in range(100_000):
        rate = meter.add(step / 1e4, step)
    assert rate == pytest.approx(1e4, rel=0.05)
    assert len(meter._samples) < 200


@pytest.mark.parametrize(
    ("totals", "expected"),
    [
        (TransferTotals(0, 0.0), "0 B in 0 s"),
        (TransferTotals(5_000_000, 2.0, (("a.example", 5_000_000),)), "5 MB in 2 s (2.5 MB/s) from a.example"),
        (
            TransferTotals(10_000, 10.0, (("a", 4000), ("b", 6000), ("idle", 0)), 1, 2, 3, 500),
            "10 kB in 10 s (1 kB/s) from 2 sources (b 6 kB, a 4 kB)"
            " · 1 retry, 2 stalls recovered, 3 blocks requested twice, 500 B wasted",
        ),
    ],
)
def test_format_totals(totals, expected):
    assert format_totals(totals) == expected
