"""Event logs that are truncated, damaged or read while they grow: nothing raises, and no complete event is lost."""

from __future__ import annotations

import json
import math
import re
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.condor.eventlog import JobEvent
from packtrain.condor.eventlog.classad_format import JsonLogParser, XmlLogParser
from packtrain.condor.eventlog.text_format import TextLogParser
from packtrain.condor.eventlog.timestamps import TimestampParser
from packtrain.events import Event, kinds
from packtrain.report.analysis.findings import collect_findings
from packtrain.report.analysis.statistics import compute_stats
from packtrain.report.export import report_to_json
from packtrain.report.history import JobHistory, Phase
from packtrain.report.readers.condor_log import LogHistoryBuilder
from tests.support.paths import TESTS_DIR

DATA = TESTS_DIR / "data"
TEXTS = [path.read_bytes() for path in sorted((DATA / "condor-logs").glob("*.log"))]
TEXTS += [
    (DATA / f"condor-forms/{name}.log").read_bytes() for name in ("old", "fractions", "utc", "job-ad", "suspended")
]
LOGS = [(TextLogParser, text) for text in TEXTS]
LOGS += [(JsonLogParser, (DATA / "condor-forms/json.log").read_bytes())]
LOGS += [(XmlLogParser, (DATA / "condor-forms/xml.log").read_bytes())]
AGENT_EVENTS = [
    (kinds.AGENT_STARTED, {"attempt": "0-1"}),
    (kinds.STAGE_STARTED, {"stage": "fetch"}),
    (kinds.STAGE_ENDED, {"stage": "fetch", "seconds": 10.0, "bytes": 500, "source": "http://a/b"}),
    (kinds.STAGE_STARTED, {"stage": "steps"}),
    (kinds.STAGE_ENDED, {"stage": "steps", "seconds": 30.0}),
    (kinds.AGENT_ENDED, {"outcome": "requeued", "reason": "the limit is near", "seconds": 41.0}),
]
HEAD = "{:03} (007.000.000) 2026-11-16 02:00:{:02} {}\n...\n"
AGENT_LINES = [
    f"packtrain {Event('run-1', '0', 'agent-1', n, kind, 5.0 + n, float(n), data).to_json()}"
    for n, (kind, data) in enumerate(AGENT_EVENTS, 1)
]
LINES = [(0, "Job submitted from host: <a>"), (1, "Job executing on host: <a>"), *((8, line) for line in AGENT_LINES)]
LINES += [(5, "Job terminated.\n\t(1) Normal termination (return value 86)")]
AGENT_LOGS = [(TextLogParser, "".join(HEAD.format(code, n, text) for n, (code, text) in enumerate(LINES)).encode())]
REAL_EVENTS = [JobEvent(*fields) for text in TEXTS for fields in TextLogParser(TimestampParser(2e9)).feed(text)]
WAITING = (Phase.QUEUED, Phase.HELD)


def read(parser, *chunks):
    events = [fields for chunk in chunks for fields in parser.feed(chunk)]
    return [JobEvent(*fields) for fields in events + parser.finish()]


def read_without_offsets(parser_type, *chunks):
    return [event._replace(offset=0) for event in read(parser_type(TimestampParser(2e9)), *chunks)]


def count_complete(parser_type, data, cut):
    """Return how many events end within the first `cut` bytes of a log. The last line needs no newline."""
    marker, count, position = parser_type.END_MARKER, 0, 0
    while (position := data.find(marker, position)) >= 0 and position + len(marker) - 1 <= cut:
        count, position = count + 1, position + len(marker) - 1
    return count


def heads(events):
    return [(event.event_type, event.job_id, event.timestamp) for event in events]


@st.composite
def logs(draw):
    return draw(st.sampled_from(LOGS))


@given(logs(), st.data())
@settings(max_examples=150, deadline=None)
def test_truncated_at_any_byte(log, data):
    parser_type, text = log
    cut = data.draw(st.integers(0, len(text)))
    all_events = read_without_offsets(parser_type, text)
    assert read_without_offsets(parser_type, text[:cut]) == all_events[: count_complete(parser_type, text, cut)]


@given(logs(), st.data())
@settings(max_examples=100, deadline=None)
def test_beginning_is_missing(log, data):
    """All events after the first complete one are found."""
    parser_type, text = log
    cut = data.draw(st.integers(0, len(text)))
    all_events, events = read_without_offsets(parser_type, text), read_without_offsets(parser_type, text[cut:])
    n_missing = count_complete(parser_type, text, cut)
    n_found = len(all_events) - n_missing - 1
    assert n_found <= 0 or events[-n_found:] == all_events[n_missing + 1 :]


@given(logs(), st.data())
@settings(max_examples=100, deadline=None)
def test_read_in_chunks(log, data):
    parser_type, text = log
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    chunks = [text[start:end] for start, end in pairwise([0, *cuts, len(text)])]
    chunk_parser, parser = parser_type(TimestampParser(2e9)), parser_type(TimestampParser(2e9))
    assert read(chunk_parser, *chunks) == read(parser, text)
    assert chunk_parser.unreadable == parser.unreadable
    assert chunk_parser.offset == parser.offset == len(text)


def is_noise(line):
    """Return whether a line cannot begin or end an event, or be an attribute."""
    return not line.strip().startswith((b".", b"0", b"{", b"}", b"<", b'"'))


noise = st.binary(max_size=60).map(lambda line: line.replace(b"\n", b" ").replace(b"\r", b" ")).filter(is_noise)


@given(st.sampled_from(TEXTS), st.data())
@settings(max_examples=150, deadline=None)
def test_noise_in_text(text, data):
    """Lines of noise between events and inside them."""
    lines = text.split(b"\n")
    for index, line in data.draw(st.lists(st.tuples(st.integers(0, len(lines) - 1), noise), max_size=8)):
        lines.insert(index, line)
    assert heads(read_without_offsets(TextLogParser, b"\n".join(lines))) == heads(
        read_without_offsets(TextLogParser, text)
    )


@given(st.sampled_from(LOGS[-2:]), st.data())
@settings(max_examples=60, deadline=None)
def test_noise_in_json_and_xml(log, data):
    parser_type, text = log
    lines = text.split(b"\n")
    for index, line in data.draw(st.lists(st.tuples(st.integers(0, len(lines) - 1), noise), max_size=4)):
        lines.insert(index, line)
    assert heads(read_without_offsets(parser_type, b"\n".join(lines))) == heads(read_without_offsets(parser_type, text))


@given(st.binary(max_size=400), st.sampled_from((TextLogParser, JsonLogParser, XmlLogParser)))
@settings(max_examples=150, deadline=None)
def test_any_bytes(data, parser_type):
    for event in read(parser_type(TimestampParser(2e9)), data):
        assert math.isfinite(event.timestamp)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_order_of_events_gives_a_history(data):
    """Events of real logs, dropped, repeated and shuffled.

    Times never run backwards, executions do not overlap and have no gaps, and waits are outside executions.
    """
    events = data.draw(st.lists(st.sampled_from(REAL_EVENTS), max_size=40))
    steps = data.draw(st.lists(st.integers(-5, 100), min_size=len(events), max_size=len(events)))
    now, builder = 1000.0, LogHistoryBuilder()
    for event, step in zip(events, steps, strict=True):
        now += step
        builder.add_records([event._replace(job_id=(7, 0), timestamp=now)])
    for job, _ in builder.finish():
        check_job(job)


def check_job(job):
    previous_end = -math.inf
    for number, execution in enumerate(job.executions, 1):
        assert execution.number == number
        assert execution.spans
        assert execution.start >= previous_end
        assert all(span.end == next_span.start for span, next_span in pairwise(execution.spans))
        assert all(span.end >= span.start and span.phase not in WAITING for span in execution.spans)
        assert 0 <= execution.retained_compute_s <= execution.seconds_in(Phase.EXECUTE) + 1e-6
        assert all(transfer.duration_s >= 0 for transfer in execution.input_transfers)
        previous_end = execution.end
    for wait in job.waits:
        assert wait.phase in WAITING
        assert wait.end > wait.start
        assert all(wait.end <= e.start or wait.start >= e.end for e in job.executions), (wait, job.executions)
    assert all(wait.end <= next_wait.start for wait, next_wait in pairwise(job.waits))


ODD_VALUES = st.sampled_from(
    [
        *(
            b"abc",
            b"",
            b"-",
            b"-1",
            b"1.5",
            b"0.0",
            b"1e309",
            b"NaN",
            b"-Infinity",
            b"null",
            b"true",
            b"[]",
            b"{}",
            b'"x"',
        ),
        *(b"9" * 5000, b"9" * 400, b"9" * 20, b"2" * 18, "²".encode(), "٣".encode(), b"[" * 100_000),
        *(b"\x1b[2J", b'"\\u001b]0;x\\u0007"'),
    ]
)
NUMBER = re.compile(rb"(?<![\w.:/-])-?\d+(?:\.\d+)?(?![\w.:/-])")


@given(st.sampled_from([*LOGS, *AGENT_LOGS]), st.data())
@settings(max_examples=200, deadline=None)
def test_odd_values(log, data):
    """Odd values in place of numbers, in all formats: nothing raises, and the report is valid JSON."""
    parser_type, text = log
    spans = [match.span() for match in NUMBER.finditer(text)]
    for start, end in sorted(data.draw(st.lists(st.sampled_from(spans), max_size=6, unique=True)), reverse=True):
        text = text[:start] + data.draw(ODD_VALUES) + text[end:]
    builder = LogHistoryBuilder()
    builder.add_records(read(parser_type(TimestampParser(2e9)), text))
    jobs = tuple(job for job, _ in builder.finish())
    for job in jobs:
        check_job(job)
    history = JobHistory("odd", "log", jobs)
    stats = compute_stats(history)
    report = report_to_json(history, stats, collect_findings(history, stats))
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", json.dumps(report, allow_nan=False, ensure_ascii=False))
