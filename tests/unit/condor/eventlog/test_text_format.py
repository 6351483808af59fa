"""The text form of user logs, with what spoils it in real life."""

from __future__ import annotations

import os
import time
from datetime import datetime, timezone

import pytest

from packtrain.condor.eventlog import JobEvent
from packtrain.condor.eventlog import job_event as codes_of
from packtrain.condor.eventlog.attributes import event_attributes
from packtrain.condor.eventlog.text_format import TextLogParser
from packtrain.condor.eventlog.timestamps import TimestampParser
from tests.support.paths import TESTS_DIR

LOGS = TESTS_DIR / "data/condor-logs"
NOW = datetime(2026, 11, 16, 12).timestamp()
SUBMITTED = "000 (012.003.000) 2026-11-16 02:13:28 Job submitted from host: <127.0.0.1:9618>\n...\n"
EXECUTES = "001 (012.003.000) 2026-11-16 02:13:29 Job executing on host: <127.0.0.1:9618>\n\tSlotName: slot1@a\n...\n"
ENDED = "005 (012.003.000) 2026-11-16 02:14:00 Job terminated.\n\t(1) Normal termination (return value 0)\n...\n"
UNREAD = {"GPUs", "TimeExecuteUsage", "TimeSlotBusyUsage", "ReasonSubCode"}  # what HTCondor itself leaves unread in 004


def read(text, newest=NOW):
    reader = TextLogParser(TimestampParser(newest))
    data = text.encode() if isinstance(text, str) else text
    return [JobEvent(*raw) for raw in reader.feed(data) + reader.finish()], reader.unreadable


def codes(text):
    return [record.event_type for record in read(text)[0]]


def test_a_record_has_its_head_and_its_lines():
    (_, record), broken = read(SUBMITTED + EXECUTES)
    assert broken == []
    assert (record.event_type, record.cluster, record.proc, record.offset) == (1, 12, 3, len(SUBMITTED))
    assert record.timestamp == datetime(2026, 11, 16, 2, 13, 29).timestamp()
    assert record.first_line == "Job executing on host: <127.0.0.1:9618>"
    assert record.detail_lines == ("SlotName: slot1@a",)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2026-11-16 02:13:28", datetime(2026, 11, 16, 2, 13, 28).timestamp()),
        ("2026-11-16T02:13:28", datetime(2026, 11, 16, 2, 13, 28).timestamp()),
        ("2026-11-16 02:13:28.125", datetime(2026, 11, 16, 2, 13, 28).timestamp() + 0.125),
        ("2026-11-16 02:13:28Z", datetime(2026, 11, 16, 2, 13, 28, tzinfo=timezone.utc).timestamp()),
        ("2026-11-16 02:13:28.5+01:30", datetime(2026, 11, 16, 0, 43, 28, tzinfo=timezone.utc).timestamp() + 0.5),
        ("2026-11-16 02:13:28-0500", datetime(2026, 11, 16, 7, 13, 28, tzinfo=timezone.utc).timestamp()),
        ("11/16 02:13:28", datetime(2026, 11, 16, 2, 13, 28).timestamp()),
        ("12/24 02:13:28", datetime(2025, 12, 24, 2, 13, 28).timestamp()),  # that of last year: this one's is to come
        ("02/29 02:13:28", datetime(2024, 2, 29, 2, 13, 28).timestamp()),
    ],
)
def test_times_of_all_versions(written, meant):
    records, broken = read(SUBMITTED.replace("2026-11-16 02:13:28", written) * 2)  # the second one is known
    assert [record.timestamp for record in records] == [meant, meant]
    assert broken == []


def test_local_times_follow_the_clock_change():
    zone = os.environ.get("TZ")
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    try:
        summer, winter = (
            SUBMITTED.replace("2026-11-16 02:13", day) for day in ("2026-10-24 12:00", "2026-10-25 12:00")
        )
        first, second = read(summer + winter)[0]
        assert second.timestamp - first.timestamp == 25 * 3600
    finally:
        os.environ.pop("TZ")
        if zone is not None:
            os.environ["TZ"] = zone
        time.tzset()


def test_a_log_from_windows():
    assert codes((SUBMITTED + ENDED).replace("\n", "\r\n")) == [0, 5]


def test_a_last_line_without_an_end():
    assert codes((SUBMITTED + ENDED).rstrip("\n")) == [0, 5]


def test_an_event_that_was_never_finished_costs_nothing_else():
    cut = EXECUTES.replace("...\n", "")
    records, broken = read(SUBMITTED + cut + ENDED)
    assert [record.event_type for record in records] == [0, 5]
    assert [line for line, _ in broken] == [3]
    assert "001 (012.003.000)" in broken[0].text


def test_noise_is_told_with_its_line():
    records, broken = read(f"what is this\n{SUBMITTED}and this?\nmore\n{ENDED}\0\0\n")
    assert [record.event_type for record in records] == [0, 5]
    assert [line for line, _ in broken] == [1, 4, 9]


def test_noise_inside_of_an_event_does_not_hide_it():
    noisy = EXECUTES.replace("\tSlot", "0 what is this\n\tSlot")
    (record,), broken = read(noisy)
    assert event_attributes(record)["SlotName"] == "slot1@a"
    assert broken == []


def test_the_end_of_a_log_whose_beginning_is_lost():
    records, broken = read("\tSlotName: slot1@a\n...\n" + ENDED)
    assert [record.event_type for record in records] == [5]
    assert [line for line, _ in broken] == [1]


def test_an_unfinished_end_is_told_and_waits_for_more():
    reader = TextLogParser(TimestampParser(NOW))
    assert [raw[1] for raw in reader.feed((SUBMITTED + ENDED[:40]).encode())] == [0]
    assert reader.unreadable == []
    assert [raw[1] for raw in reader.feed(ENDED[40:].encode())] == [5]
    assert reader.finish() == []
    assert reader.unreadable == []
    reader.feed(ENDED[:-3].encode())
    reader.finish()
    assert [line for line, _ in reader.unreadable] == [6]


def test_a_date_that_does_not_exist():
    records, broken = read(SUBMITTED.replace("11-16", "13-16") + SUBMITTED.replace("2026-11-16", "02/30") + ENDED)
    assert [record.event_type for record in records] == [5]
    assert [line for line, _ in broken] == [1, 3]


def test_bytes_that_are_no_text():
    (record,), _ = read(EXECUTES.encode().replace(b"slot1@a", b"slot1@\xff\xfe"))
    assert event_attributes(record)["SlotName"] == "slot1@��"


def test_what_has_no_end_is_not_kept():
    reader = TextLogParser(TimestampParser(NOW))
    for _ in range(18):
        reader.feed(b"x" * (1 << 20))
    assert len(reader._pending) < 1 << 24
    assert [raw[1] for raw in reader.feed(f"\n...\n{ENDED}".encode())] == [5]
    assert "no event within" in reader.unreadable[0].text


@pytest.mark.parametrize("log", sorted(LOGS.glob("*.log")), ids=lambda path: path.stem)
def test_real_logs_as_htcondor_itself_reads_them(log, monkeypatch):
    """Event by event: what HTCondor's own reader says of it, we say; what we say, it says."""
    monkeypatch.setenv("CONDOR_CONFIG", os.devnull)
    import htcondor2

    ours, broken = read(log.read_bytes())
    theirs = list(htcondor2.JobEventLog(str(log)).events(stop_after=0))
    assert broken == []
    assert [record.event_type for record in ours] == [int(event.type) for event in theirs]
    for record, event in zip(ours, theirs, strict=True):
        assert (record.cluster, record.proc, record.timestamp) == (event.cluster, event.proc, event.timestamp)
        told = {**event.get("ExecuteProps", {}), **event}
        said = event_attributes(record)
        plain = {name: told[name] for name in said if isinstance(told.get(name), (str, int, float))}
        assert {name: said[name] for name in plain} == plain
        assert set(said) - set(told) <= (UNREAD if record.event_type == codes_of.EVICTED else set())
