"""Tests of PreemptionMonitor: SIGTERM, the agent's stop file, the deadline."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from packtrain.torch.preemption import PreemptionMonitor


@pytest.fixture(autouse=True)
def without_packtrain(monkeypatch):
    monkeypatch.delenv("PACKTRAIN_STOP", raising=False)
    monkeypatch.delenv("PACKTRAIN_DEADLINE", raising=False)


@pytest.fixture
def received():
    """The signals that an earlier handler of SIGTERM receives."""
    signals = []
    previous = signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))
    yield signals
    signal.signal(signal.SIGTERM, previous)


def test_sigterm_reaches_both_handlers(received):
    earlier = signal.getsignal(signal.SIGTERM)
    monitor = PreemptionMonitor()
    assert not monitor.is_stop_requested(0)
    os.kill(os.getpid(), signal.SIGTERM)
    assert monitor.is_stop_requested(0) and received == [signal.SIGTERM]
    monitor.close()
    assert signal.getsignal(signal.SIGTERM) == earlier


def test_later_handler_is_kept(received):
    def later(number, frame):
        pass

    monitor = PreemptionMonitor()
    signal.signal(signal.SIGTERM, later)
    monitor.close()
    assert signal.getsignal(signal.SIGTERM) is later


def test_no_handler_in_other_threads(received):
    earlier, monitors = signal.getsignal(signal.SIGTERM), []
    thread = threading.Thread(target=lambda: monitors.append(PreemptionMonitor()))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) == earlier
    monitors[0].close()
    assert not monitors[0].is_stop_requested(0)


def test_stop_file(tmp_path, monkeypatch, received):
    monkeypatch.setenv("PACKTRAIN_STOP", str(tmp_path / "stop"))
    monitor = PreemptionMonitor()
    assert not monitor.is_stop_requested(0)
    (tmp_path / "stop").write_text("term")
    assert monitor.is_stop_requested(0)
    (tmp_path / "stop").unlink()
    assert monitor.is_stop_requested(0), "a request is never withdrawn"


@pytest.mark.parametrize(
    ("remaining_s", "save_duration_s", "is_near"), [(1000, 1, False), (1000, 600, True), (3, 0, True), (-9, 0, True)]
)
def test_deadline_leaves_time_for_a_save(monkeypatch, received, remaining_s, save_duration_s, is_near):
    monkeypatch.setenv("PACKTRAIN_DEADLINE", str(time.time() + remaining_s))
    assert PreemptionMonitor().is_stop_requested(save_duration_s) is is_near


def test_invalid_deadline_is_ignored(monkeypatch, received):
    monkeypatch.setenv("PACKTRAIN_DEADLINE", "soon")
    assert not PreemptionMonitor().is_stop_requested(0)
