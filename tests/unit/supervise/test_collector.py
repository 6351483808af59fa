"""From updates of an engine to stored events."""

from __future__ import annotations

import pytest

from packtrain.engines.updates import (
    AgentEventsReceived,
    ExecutionInterrupted,
    ExecutionStarted,
    Gone,
    Held,
    ProgressReported,
    Queued,
    Released,
    Running,
    TransferChanged,
)
from packtrain.events import Event, kinds
from packtrain.state import RunState
from packtrain.supervise import Collector

IDS = ("0-1", "0")
LOG = {"native_id": "12.0", "site": "Ada", "seq": 7, "occurred_at": 5.0}
WHERE = {"attempt": "0-1", "native_id": "12.0", "site": "Ada"}


@pytest.fixture
def collect(harness):
    def collect_updates(*updates):
        n_before = len(harness.events())
        collector = Collector(harness.store, "run-1", harness.folder, clock=lambda: 9.0)
        collector.collect(RunState("run-1"), updates)
        return harness.events()[n_before:]

    return collect_updates


@pytest.mark.parametrize(
    ("update", "kind", "data"),
    [
        (
            ExecutionStarted(*IDS, **LOG, execution=1, host="w1"),
            kinds.EXECUTION_STARTED,
            {"execution": 1, "host": "w1"},
        ),
        (
            ExecutionInterrupted(*IDS, **LOG, execution=1, failure_kind="evicted", detail="d", emitters=("a",)),
            kinds.EXECUTION_INTERRUPTED,
            {"execution": 1, "kind": "evicted", "detail": "d", "emitters": ["a"]},
        ),
        (
            Held(*IDS, **LOG, action="wait", code=1, failure_kind="held", detail="d"),
            kinds.ATTEMPT_HELD,
            {"action": "wait", "code": 1, "kind": "held", "detail": "d"},
        ),
        (Released(*IDS, **LOG), kinds.ATTEMPT_RELEASED, {}),
    ],
)
def test_update_from_log(collect, update, kind, data):
    (event,) = collect(update)
    assert (event.emitter, event.seq, event.kind, event.wall) == ("engine-log", 7, kind, 5.0)
    assert event.data == {**WHERE, **data}
    assert collect(update) == [], "stored once"


def test_transfer(collect):
    (event,) = collect(TransferChanged(*IDS, seq=7, execution=2, direction="in", state="started"))
    assert event.kind == kinds.ATTEMPT_TRANSFER
    assert event.data == {"attempt": "0-1", "execution": 2, "direction": "in", "phase": "started"}


def test_gone(collect):
    (event,) = collect(Gone(*IDS, exit_code=None, detail="d"))
    assert (event.kind, event.emitter, event.seq, event.wall) == (kinds.ATTEMPT_GONE, "engine-0-1", 1, 9.0)
    assert event.data == {"attempt": "0-1", "exit_code": None, "detail": "d", "kind": ""}


def test_status_is_no_event(collect):
    assert collect(Queued(*IDS), Running(*IDS), Released(*IDS)) == [], "without a position in the log"


def test_agent_events_of_this_run_only(collect):
    own, other = (Event(run, "0", "agent-1", 1, kinds.NOTICE, 1.0, 1.0, {}) for run in ("run-1", "run-2"))
    assert collect(AgentEventsReceived(*IDS, events=(own, other))) == [own]


def test_progress_and_wait_reason(collect, harness):
    collect(ProgressReported(*IDS, progress={"step": 3}), Queued("1-1", "1", reason="no slot"))
    assert harness.store.progress("run-1") == {
        "0-1": {"attempt": "0-1", "step": 3},
        "1-1": {"attempt": "1-1", "wait_reason": "no slot"},
    }
    collect(Queued(*IDS), Queued("1-1", "1", reason=""))
    assert harness.store.progress("run-1")["0-1"] == {"attempt": "0-1", "step": 3}, "nothing new"
    assert harness.store.progress("run-1")["1-1"] == {"attempt": "1-1", "wait_reason": ""}, "no longer"
