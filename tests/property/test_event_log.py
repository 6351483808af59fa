"""User logs that were cut, spoiled or read while they grew: nothing raises, and no complete event is lost."""

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
from packtrain.report.analysis.findings import find_insights
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
FORMS = [(TextLogParser, text) for text in TEXTS]
FORMS += [(JsonLogParser, (DATA / "condor-forms/json.log").read_bytes())]
FORMS += [(XmlLogParser, (DATA / "condor-forms/xml.log").read_bytes())]
AGENT = [
    (kinds.AGENT_STARTED, {"attempt": "0-1"}),
    (kinds.STAGE_STARTED, {"stage": "fetch"}),
    (kinds.STAGE_ENDED, {"stage": "fetch", "seconds": 10.0, "bytes": 500, "source": "http://a/b"}),
    (kinds.STAGE_STARTED, {"stage": "steps"}),
    (kinds.STAGE_ENDED, {"stage": "steps", "seconds": 30.0}),
    (kinds.AGENT_ENDED, {"outcome": "requeued", "reason": "the limit is near", "seconds": 41.0}),
]
HEAD = "{:03} (007.000.000) 2026-11-16 02:00:{:02} {}\n...\n"
WORDS = [
    f"packtrain {Event('run-1', '0', 'agent-1', n, kind, 5.0 + n, float(n), said).to_json()}"
    for n, (kind, said) in enumerate(AGENT, 1)
]
LINES = [(0, "Job submitted from host: <a>"), (1, "Job executing on host: <a>"), *((8, word) for word in WORDS)]
LINES += [(5, "Job terminated.\n\t(1) Normal termination (return value 86)")]
SPOKEN = [(TextLogParser, "".join(HEAD.format(code, n, text) for n, (code, text) in enumerate(LINES)).encode())]
KNOWN = [JobEvent(*raw) for text in TEXTS for raw in TextLogParser(TimestampParser(2e9)).feed(text)]
WAITING = (Phase.QUEUED, Phase.HELD)


def read(reader, *pieces):
    found = [raw for piece in pieces for raw in reader.feed(piece)]
    return [JobEvent(*raw) for raw in found + reader.finish()]


def told(kind, *pieces):
    """The events, whatever their places."""
    return [record._replace(offset=0) for record in read(kind(TimestampParser(2e9)), *pieces)]


def complete(kind, data, cut):
    """How many events of the log end within its first `cut` bytes; the last line needs no end."""
    end, count, at = kind.END_MARKER, 0, 0
    while (at := data.find(end, at)) >= 0 and at + len(end) - 1 <= cut:
        count, at = count + 1, at + len(end) - 1
    return count


@st.composite
def logs(draw):
    return draw(st.sampled_from(FORMS))


@given(logs(), st.data())
@settings(max_examples=150, deadline=None)
def test_cut_at_any_byte(log, data):
    kind, text = log
    cut = data.draw(st.integers(0, len(text)))
    whole = told(kind, text)
    assert told(kind, text[:cut]) == whole[: complete(kind, text, cut)]


@given(logs(), st.data())
@settings(max_examples=100, deadline=None)
def test_cut_off_at_its_beginning(log, data):
    """What follows the first whole event is there."""
    kind, text = log
    cut = data.draw(st.integers(0, len(text)))
    whole, rest = told(kind, text), told(kind, text[cut:])
    behind = complete(kind, text, cut)
    assert rest[-(len(whole) - behind - 1) :] == whole[behind + 1 :] or len(whole) - behind <= 1


@given(logs(), st.data())
@settings(max_examples=100, deadline=None)
def test_read_in_pieces_as_it_grows(log, data):
    kind, text = log
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    pieces = [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]
    one, other = kind(TimestampParser(2e9)), kind(TimestampParser(2e9))
    assert read(one, *pieces) == read(other, text)
    assert one.unreadable == other.unreadable
    assert one.offset == other.offset == len(text)


def is_noise(line):
    """No event, no end of one, no beginning; and nothing that says it is an attribute."""
    return not line.strip().startswith((b".", b"0", b"{", b"}", b"<", b'"'))


noise = st.binary(max_size=60).map(lambda line: line.replace(b"\n", b" ").replace(b"\r", b" ")).filter(is_noise)


@given(st.sampled_from(TEXTS), st.data())
@settings(max_examples=150, deadline=None)
def test_lines_of_noise(text, data):
    """Anywhere: between events, and inside of them."""
    lines = text.split(b"\n")
    for at, line in data.draw(st.lists(st.tuples(st.integers(0, len(lines) - 1), noise), max_size=8)):
        lines.insert(at, line)
    heads = [(r.event_type, r.job_id, r.timestamp) for r in told(TextLogParser, text)]
    reader = TextLogParser(TimestampParser(2e9))
    found = read(reader, b"\n".join(lines))
    assert [(r.event_type, r.job_id, r.timestamp) for r in found] == heads


@given(st.sampled_from(FORMS[-2:]), st.data())
@settings(max_examples=60, deadline=None)
def test_lines_of_noise_among_ads(log, data):
    kind, text = log
    lines = text.split(b"\n")
    for at, line in data.draw(st.lists(st.tuples(st.integers(0, len(lines) - 1), noise), max_size=4)):
        lines.insert(at, line)
    assert [(r.event_type, r.job_id, r.timestamp) for r in told(kind, b"\n".join(lines))] == [
        (r.event_type, r.job_id, r.timestamp) for r in told(kind, text)
    ]


@given(st.binary(max_size=400), st.sampled_from((TextLogParser, JsonLogParser, XmlLogParser)))
@settings(max_examples=150, deadline=None)
def test_any_bytes(data, kind):
    for record in read(kind(TimestampParser(2e9)), data):
        assert math.isfinite(record.timestamp)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_order_of_events_makes_a_history(data):
    """Of real logs, dropped, repeated, shuffled: times never run backwards, attempts neither overlap nor have gaps in
    them, and waits lie outside of them."""
    events = data.draw(st.lists(st.sampled_from(KNOWN), max_size=40))
    steps = data.draw(st.lists(st.integers(-5, 100), min_size=len(events), max_size=len(events)))
    now, fold = 1000.0, LogHistoryBuilder()
    for event, step in zip(events, steps, strict=True):
        now += step
        fold.add_records([event._replace(key=(7, 0), when=now)])
    for job, _ in fold.finish():
        check(job)


def check(job):
    previous = -math.inf
    for number, attempt in enumerate(job.executions, 1):
        assert attempt.number == number
        assert attempt.spans
        assert attempt.start >= previous
        assert all(one.end == other.start for one, other in pairwise(attempt.spans))
        assert all(span.end >= span.start and span.phase not in WAITING for span in attempt.spans)
        assert 0 <= attempt.kept_s <= attempt.of(Phase.EXECUTE) + 1e-6
        assert all(move.seconds >= 0 for move in attempt.moves)
        previous = attempt.end
    for wait in job.waits:
        assert wait.phase in WAITING
        assert wait.end > wait.start
        assert all(wait.end <= a.start or wait.start >= a.end for a in job.attempts), (wait, job.attempts)
    assert all(one.end <= other.start for one, other in pairwise(job.waits))


ODD_WORDS = st.sampled_from(
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


@given(st.sampled_from([*FORMS, *SPOKEN]), st.data())
@settings(max_examples=200, deadline=None)
def test_odd_values_make_a_report(log, data):
    """In place of any number of a log, in any of its forms: nothing raises, and all of it can be told."""
    kind, text = log
    places = [found.span() for found in NUMBER.finditer(text)]
    for start, end in sorted(data.draw(st.lists(st.sampled_from(places), max_size=6, unique=True)), reverse=True):
        text = text[:start] + data.draw(ODD_WORDS) + text[end:]
    fold = LogHistoryBuilder()
    fold.add_records(read(kind(TimestampParser(2e9)), text))
    jobs = tuple(job for job, _ in fold.finish())
    for job in jobs:
        check(job)
    history = JobHistory("odd", "log", jobs)
    figures = compute_stats(history)
    told = json.dumps(
        report_to_json(history, figures, find_insights(history, figures)), allow_nan=False, ensure_ascii=False
    )
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", told)
