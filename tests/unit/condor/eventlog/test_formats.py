"""The log of one job of a real pool, in every format that HTCondor writes."""

from __future__ import annotations

import pytest

from packtrain.condor.eventlog import JobEvent, event_types
from packtrain.condor.eventlog.attributes import event_attributes
from packtrain.condor.eventlog.log_files import read_events
from tests.support.paths import TESTS_DIR

LOGS = TESTS_DIR / "data/condor-forms"
SEQUENCE = [0, 40, 40, 1, 40, 40, 5]


def read(path, unreadable):
    events = [JobEvent(*fields) for batch in read_events(path, unreadable) for fields in batch]
    return [event for event in events if event.event_type != event_types.IMAGE_SIZE]


@pytest.mark.parametrize("name", ["text", "old", "fractions", "utc", "json", "xml"])
def test_all_formats_have_the_same_events(name):
    unreadable = []
    events = read(LOGS / f"{name}.log", unreadable)
    assert unreadable == []
    assert [event.event_type for event in events] == SEQUENCE
    assert len({event.job_id for event in events}) == 1
    executes, ended = event_attributes(events[3]), event_attributes(events[-1])
    assert executes["GLIDEIN_ResourceName"] == "GP-ARGO-ksu-backfill"
    assert executes["SlotName"] == "slot1_1@site2@localhost.pool.test"
    assert ended["ReturnValue"] == 0
    assert ended["ReceivedBytes"] == 50_000_000
    assert ended["SentBytes"] == 3_000_000
    assert ended["TimeSlotBusyUsage"] >= ended["TimeExecuteUsage"] >= 2
    assert 0 <= events[-1].timestamp - events[0].timestamp < 60
