"""Tests of CpuBoundDetector: whether the processor limits reading, or waiting for the network."""

from __future__ import annotations

from packtrain.stream.reader_threads import CpuBoundDetector

FAST, CONTENDED, SLOW = (
    (0.002, 0.003),
    (0.002, 0.012),
    (0.002, 0.3),
)  # processor time and elapsed time of a read, in seconds


def is_cpu_bound(*reads: tuple[float, float], is_local: bool = False) -> bool:
    detector = CpuBoundDetector(is_local)
    for cpu_s, elapsed_s in reads:
        detector.record_read(cpu_s, elapsed_s)
    return detector.is_cpu_bound


def test_needs_a_few_reads():
    assert not is_cpu_bound(*[FAST] * 3)
    assert is_cpu_bound(*[FAST] * 4)
    assert not is_cpu_bound(*[SLOW] * 20)


def test_local_server():
    """A local server is assumed to be fast until reads show that it waits itself."""
    assert is_cpu_bound(is_local=True)
    assert is_cpu_bound(*[CONTENDED] * 50, is_local=True)
    assert not is_cpu_bound(*[CONTENDED] * 50)
    assert not is_cpu_bound(*[SLOW] * 4, is_local=True)


def test_short_contention_is_ignored():
    """Other processes decode samples at the same time."""
    assert is_cpu_bound(*[FAST] * 20, *[CONTENDED] * 4, *[FAST] * 4)


def test_slow_network_is_detected_at_once():
    assert not is_cpu_bound(*[FAST] * 50, SLOW)


def test_fast_network_is_detected_later():
    assert is_cpu_bound(*[SLOW] * 10, *[FAST] * 150)
