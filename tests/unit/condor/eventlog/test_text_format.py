"""The text format of event logs, with noise, damage and times of all versions."""

from __future__ import annotations

import os
import time
from datetime import datetime, timezone

import pytest

from packtrain.condor.eventlog import JobEvent, event_types
from packtrain.condor.eventlog.attributes import event_attributes
from packtrain.condor.eventlog.text_format import TextLogParser
from packtrain.condor.eventlog.timestamps import TimestampParser
from tests.support.paths import TESTS_DIR

LOGS = TESTS_DIR / "data/condor-logs"
NOW = datetime(2026, 11, 16, 12).timestamp()
SUBMITTED = "000 (012.003.000) 2026-11-16 02:13:28 Job submitted from host: <127.0.0.1:9618>\n...\n"
EXECUTES = "001 (012.003.000) 2026-11-16 02:13:29 Job executing on host: <127.0.0.1:9618>\n\tSlotName: slot1@a\n...\n"
ENDED = "005 (012.003.000) 2026-11-16 02:14:00 Job terminated.\n\t(1) Normal termination (return value 0)\n...\n"
UNREAD = {
    "GPUs",
    "TimeExecuteUsage",
    "TimeSlotBusyUsage",
    "ReasonSubCode",
}  # attributes that HTCondor's own parser does not parse in 004


def read(text):
    parser = TextLogParser(TimestampParser(NOW))
    data = text.encode() if isinstance(text, str) else text
    return [JobEvent(*fields) for fields in parser.feed(data) + parser.finish()], parser.unreadable


def read_types(text):
    return [event.event_type for event in read(text)[0]]


def test_event_fields():
    (_, event), unreadable = read(SUBMITTED + EXECUTES)
    assert unreadable == []
    assert (event.event_type, event.cluster, event.proc, event.offset) == (1, 12, 3, len(SUBMITTED))
    assert event.timestamp == datetime(2026, 11, 16, 2, 13, 29).timestamp()
    assert event.first_line == "Job executing on host: <127.0.0.1:9618>"
    assert event.detail_lines == ("SlotName: slot1@a",)


@pytest.mark.parametrize(
    ("text", "timestamp"),
    [
        ("2026-11-16 02:13:28", datetime(2026, 11, 16, 2, 13, 28).timestamp()),
        ("2026-11-16T02:13:28", datetime(2026, 11, 16, 2, 13, 28).timestamp()),
        ("2026-11-16 02:13:28.125", datetime(2026, 11, 16, 2, 13, 28).timestamp() + 0.125),
        ("2026-11-16 02:13:28Z", datetime(2026, 11, 16, 2, 13, 28, tzinfo=timezone.utc).timestamp()),
        ("2026-11-16 02:13:28.5+01:30", datetime(2026, 11, 16, 0, 43, 28, tzinfo=timezone.utc).timestamp() + 0.5),
        ("2026-11-16 02:13:28-0500", datetime(2026, 11, 16, 7, 13, 28, tzinfo=timezone.utc).timestamp()),
        ("11/16 02:13:28", datetime(2026, 11, 16, 2, 13, 28).timestamp()),
        ("12/24 02:13:28", datetime(2025, 12, 24, 2, 13, 28).timestamp()),  # of last year: this year's is in the future
        ("02/29 02:13:28", datetime(2024, 2, 29, 2, 13, 28).timestamp()),
    ],
)
def test_time_formats(text, timestamp):
    events, unreadable = read(SUBMITTED.replace("2026-11-16 02:13:28", text) * 2)  # the second one is cached
    assert [event.timestamp for event in events] == [timestamp, timestamp]
    assert unreadable == []


def test_daylight_saving_time():
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


def test_windows_line_endings():
    assert read_types((SUBMITTED + ENDED).replace("\n", "\r\n")) == [0, 5]


def test_last_line_without_newline():
    assert read_types((SUBMITTED + ENDED).rstrip("\n")) == [0, 5]


def test_incomplete_event_is_skipped():
    cut = EXECUTES.replace("...\n", "")
    events, unreadable = read(SUBMITTED + cut + ENDED)
    assert [event.event_type for event in events] == [0, 5]
    assert [line for line, _ in unreadable] == [3]
    assert "001 (012.003.000)" in unreadable[0].text


def test_noise_is_reported_with_its_line():
    events, unreadable = read(f"noise\n{SUBMITTED}more\nnoise\n{ENDED}\0\0\n")
    assert [event.event_type for event in events] == [0, 5]
    assert [line for line, _ in unreadable] == [1, 4, 9]


def test_noise_inside_an_event():
    noisy = EXECUTES.replace("\tSlot", "0 noise\n\tSlot")
    (event,), unreadable = read(noisy)
    assert event_attributes(event)["SlotName"] == "slot1@a"
    assert unreadable == []


def test_log_without_its_beginning():
    events, unreadable = read("\tSlotName: slot1@a\n...\n" + ENDED)
    assert [event.event_type for event in events] == [5]
    assert [line for line, _ in unreadable] == [1]


def test_truncated_log():
    parser = TextLogParser(TimestampParser(NOW))
    assert [fields[1] for fields in parser.feed((SUBMITTED + ENDED[:40]).encode())] == [0]
    assert parser.unreadable == []
    assert [fields[1] for fields in parser.feed(ENDED[40:].encode())] == [5]
    assert parser.finish() == []
    assert parser.unreadable == []
    parser.feed(ENDED[:-3].encode())
    parser.finish()
    assert [line for line, _ in parser.unreadable] == [6]


def test_invalid_date():
    events, unreadable = read(SUBMITTED.replace("11-16", "13-16") + SUBMITTED.replace("2026-11-16", "02/30") + ENDED)
    assert [event.event_type for event in events] == [5]
    assert [line for line, _ in unreadable] == [1, 3]


def test_invalid_utf8():
    (event,), _ = read(EXECUTES.encode().replace(b"slot1@a", b"slot1@\xff\xfe"))
    assert event_attributes(event)["SlotName"] == "slot1@��"


def test_oversized_event_is_discarded():
    parser = TextLogParser(TimestampParser(NOW))
    for _ in range(18):
        parser.feed(b"x" * (1 << 20))
    assert len(parser._pending) < 1 << 24
    assert [fields[1] for fields in parser.feed(f"\n...\n{ENDED}".encode())] == [5]
    assert "no event within" in parser.unreadable[0].text


@pytest.mark.parametrize("log", sorted(LOGS.glob("*.log")), ids=lambda path: path.stem)
def test_real_logs_as_htcondor_reads_them(log, monkeypatch):
    """Our attributes of each event are the same as those of HTCondor's own reader."""
    monkeypatch.setenv("CONDOR_CONFIG", os.devnull)
    import htcondor2

    ours, unreadable = read(log.read_bytes())
    theirs = list(htcondor2.JobEventLog(str(log)).events(stop_after=0))
    assert unreadable == []
    assert [event.event_type for event in ours] == [int(event.type) for event in theirs]
    for our_event, their_event in zip(ours, theirs, strict=True):
        assert our_event.job_id == (their_event.cluster, their_event.proc)
        assert our_event.timestamp == their_event.timestamp
        our_attributes = event_attributes(our_event)
        their_attributes = {**their_event.get("ExecuteProps", {}), **their_event}
        plain = {name: value for name, value in their_attributes.items() if isinstance(value, (str, int, float))}
        common = our_attributes.keys() & plain.keys()
        assert {name: our_attributes[name] for name in common} == {name: plain[name] for name in common}
        allowed = UNREAD if our_event.event_type == event_types.EVICTED else set()
        assert our_attributes.keys() - their_attributes.keys() <= allowed
