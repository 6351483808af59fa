"""The event log of a run, read as it grows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packtrain.condor.eventlog import JobEvent
from packtrain.engines.htcondor.tracking.log_reader import EventLogReader
from tests.support.condor_logs import EVICTED_EVENT, HELD_EVENT, UserLogBuilder, parse_events


def test_event_fields():
    (event,) = parse_events(UserLogBuilder().execute(0, site="PDX-Coeus-CE1").data)
    assert (event.event_type, event.cluster, event.proc) == (1, 12, 0)
    assert event.attribute("GLIDEIN_ResourceName") == "PDX-Coeus-CE1"
    assert event.attribute("SlotName") == "slot1_1@worker7"
    assert event.attribute("Nothing") == ""
    assert event.timestamp > 1.7e9


def test_cluster_event_has_no_proc():
    (event,) = parse_events(UserLogBuilder().cluster_submit("0-1").data)
    assert (event.event_type, event.proc) == (35, -1)


def test_offset():
    log = UserLogBuilder().submit(0, "0", "0-1").execute(0)
    first, second = parse_events(log.data)
    assert first.offset == 0
    assert log.data[second.offset :].startswith(b"001 (")


def test_incomplete_event(tmp_path):
    log, path = UserLogBuilder().submit(0, "0", "0-1").execute(0), tmp_path / "event.log"
    reader = EventLogReader(path)
    assert reader.read() == [] and not reader.has_grown
    events: list[JobEvent] = []
    for cut in range(0, len(log.data) + 1, 7):
        path.write_bytes(log.data[:cut])
        events += reader.read()
    path.write_bytes(log.data)
    events += reader.read()
    assert events == parse_events(log.data)
    assert not reader.has_grown


@pytest.mark.parametrize("line", ["", "hello", "001 (x.y.z) today", "999999", "\xff\xfe"])
def test_noise_is_skipped(line):
    data = line.encode("latin-1") + b"\n...\n" + UserLogBuilder().execute(3).data
    assert [event.proc for event in parse_events(data)] == [3]


@pytest.mark.parametrize("time", ["11/16 02:13:28", "2026-11-16T02:13:28", "2026-11-16 02:13:28.125Z"])
def test_time_formats(time):
    (event,) = parse_events(f"005 (1.0.0) {time} Job terminated.\n...\n".encode())
    assert event.event_type == 5


@given(st.lists(st.one_of(st.sampled_from([HELD_EVENT, EVICTED_EVENT, b"...\n", b"\n"]), st.binary(max_size=40))))
def test_any_bytes(parts):
    data = b"".join(parts)
    end = data.rfind(b"\n...\n") + 5 if b"\n...\n" in data else 0
    assert [event for event in parse_events(data) if event.offset < end] == parse_events(data[:end])
