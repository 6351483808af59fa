"""When a training program should leave: signals, the agent's file, the deadline."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from packtrain.torch.preemption import PreemptionMonitor


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.delenv("PACKTRAIN_STOP", raising=False)
    monkeypatch.delenv("PACKTRAIN_DEADLINE", raising=False)


@pytest.fixture
def heard():
    """An earlier handler of SIGTERM, as a list of what it heard."""
    numbers = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGTERM, before)


def test_term_is_heard_by_both_and_given_back(heard):
    earlier = signal.getsignal(signal.SIGTERM)
    stopping = PreemptionMonitor()
    assert not stopping.is_stop_requested(0)
    os.kill(os.getpid(), signal.SIGTERM)
    assert stopping.is_stop_requested(0) and heard == [signal.SIGTERM]
    stopping.close()
    assert signal.getsignal(signal.SIGTERM) == earlier


def test_a_handler_that_came_later_is_left_alone(heard):
    def later(number, frame):
        pass

    stopping = PreemptionMonitor()
    signal.signal(signal.SIGTERM, later)
    stopping.close()
    assert signal.getsignal(signal.SIGTERM) is later


def test_other_threads_leave_signals_alone(heard):
    earlier, made = signal.getsignal(signal.SIGTERM), []
    thread = threading.Thread(target=lambda: made.append(PreemptionMonitor()))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) == earlier
    made[0].close()
    assert not made[0].is_stop_requested(0)


def test_the_agents_file(tmp_path, monkeypatch, heard):
    monkeypatch.setenv("PACKTRAIN_STOP", str(tmp_path / "stop"))
    stopping = PreemptionMonitor()
    assert not stopping.is_stop_requested(0)
    (tmp_path / "stop").write_text("term")
    assert stopping.is_stop_requested(0)
    (tmp_path / "stop").unlink()
    assert stopping.is_stop_requested(0), "once asked, always asked"


@pytest.mark.parametrize(
    ("left_s", "save_takes_s", "asked"), [(1000, 1, False), (1000, 600, True), (3, 0, True), (-9, 0, True)]
)
def test_the_deadline_leaves_time_for_a_save(monkeypatch, heard, left_s, save_takes_s, asked):
    monkeypatch.setenv("PACKTRAIN_DEADLINE", str(time.time() + left_s))
    assert PreemptionMonitor().is_stop_requested(save_takes_s) is asked


def test_a_deadline_that_is_no_number_is_none(monkeypatch, heard):
    monkeypatch.setenv("PACKTRAIN_DEADLINE", "soon")
    assert not PreemptionMonitor().is_stop_requested(0)
