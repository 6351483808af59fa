"""One job of a real pool, whose log was written in every form that HTCondor has."""

from __future__ import annotations

import pytest

from packtrain.condor.eventlog import JobEvent
from packtrain.condor.eventlog import job_event as codes
from packtrain.condor.eventlog.attributes import event_attributes
from packtrain.condor.eventlog.log_files import read_events
from tests.support.paths import TESTS_DIR

FORMS = TESTS_DIR / "data/condor-forms"
SEQUENCE = [0, 40, 40, 1, 40, 40, 5]


def read(path, broken=None):
    found = [] if broken is None else broken
    every = [JobEvent(*raw) for batch in read_events(path, found) for raw in batch]
    return [record for record in every if record.event_type != codes.IMAGE_SIZE]


@pytest.mark.parametrize("form", ["text", "old", "fractions", "utc", "json", "xml"])
def test_every_form_tells_the_same(form):
    broken = []
    found = read(FORMS / f"{form}.log", broken)
    assert broken == []
    assert [record.event_type for record in found] == SEQUENCE
    assert len({record.job_id for record in found}) == 1
    executes, ended = event_attributes(found[3]), event_attributes(found[-1])
    assert executes["GLIDEIN_ResourceName"] == "GP-ARGO-ksu-backfill"
    assert executes["SlotName"] == "slot1_1@site2@localhost.pool.test"
    assert ended["ReturnValue"] == 0
    assert ended["ReceivedBytes"] == 50_000_000
    assert ended["SentBytes"] == 3_000_000
    assert ended["TimeSlotBusyUsage"] >= ended["TimeExecuteUsage"] >= 2
    assert 0 <= found[-1].timestamp - found[0].timestamp < 60
