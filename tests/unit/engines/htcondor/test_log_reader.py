"""The user log: read as it grows, whatever stands in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packtrain.condor.eventlog import JobEvent
from packtrain.engines.htcondor.log_reader import EventLogReader, parse_events
from tests.support.condor_logs import EVICTED_EVENT, HELD_EVENT, UserLogBuilder


def test_a_record_has_its_parts():
    (record,) = parse_events(UserLogBuilder().execute(0, site="PDX-Coeus-CE1").data)
    assert (record.event_type, record.cluster, record.proc) == (1, 12, 0)
    assert record.attribute("GLIDEIN_ResourceName") == "PDX-Coeus-CE1"
    assert record.attribute("SlotName") == "slot1_1@worker7"
    assert record.attribute("Nothing") == ""
    assert record.timestamp > 1.7e9


def test_a_cluster_has_no_proc():
    (record,) = parse_events(UserLogBuilder().cluster_submit("0-1").data)
    assert (record.event_type, record.proc) == (35, -1)


def test_a_record_is_known_by_where_it_begins():
    log = UserLogBuilder().submit(0, "0", "0-1").execute(0)
    first, second = parse_events(log.data)
    assert first.offset == 0
    assert log.data[second.offset :].startswith(b"001 (")


def test_an_unfinished_record_waits_for_its_end(tmp_path):
    log, path = UserLogBuilder().submit(0, "0", "0-1").execute(0), tmp_path / "event.log"
    reader = EventLogReader(path)
    assert reader.read() == [] and not reader.has_grown
    seen: list[JobEvent] = []
    for cut in range(0, len(log.data) + 1, 7):
        path.write_bytes(log.data[:cut])
        seen += reader.read()
    path.write_bytes(log.data)
    seen += reader.read()
    assert seen == list(parse_events(log.data))
    assert not reader.has_grown


@pytest.mark.parametrize("line", ["", "hello", "001 (x.y.z) today", "999999", "\xff\xfe"])
def test_what_is_no_record_is_skipped(line):
    data = line.encode("latin-1") + b"\n...\n" + UserLogBuilder().execute(3).data
    assert [record.proc for record in parse_events(data)] == [3]


@pytest.mark.parametrize("time", ["11/16 02:13:28", "2026-11-16T02:13:28", "2026-11-16 02:13:28.125Z"])
def test_other_forms_of_time_do_not_hide_a_record(time):
    (record,) = parse_events(f"005 (1.0.0) {time} Job terminated.\n...\n".encode())
    assert record.event_type == 5


@given(st.lists(st.one_of(st.sampled_from([HELD_EVENT, EVICTED_EVENT, b"...\n", b"\n"]), st.binary(max_size=40))))
def test_any_bytes_never_crash_and_reading_in_pieces_gives_the_same(parts):
    data = b"".join(parts)
    whole = list(parse_events(data))
    end = data.rfind(b"\n...\n") + 5 if b"\n...\n" in data else 0
    assert [r for r in whole if r.offset < end] == list(parse_events(data[:end]))
