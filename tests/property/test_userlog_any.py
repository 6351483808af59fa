"""User logs that were cut, spoiled or read while they grew: nothing raises, and no complete event is lost."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.report.from_log import LogFold
from packtrain.report.history import Phase
from packtrain.userlog import Record
from packtrain.userlog.ads import JsonReader, XmlReader
from packtrain.userlog.clock import Clock
from packtrain.userlog.text import TextReader

DATA = Path(__file__).parents[1] / "data"
TEXTS = [path.read_bytes() for path in sorted((DATA / "condor-logs").glob("*.log"))]
TEXTS += [
    (DATA / f"condor-forms/{name}.log").read_bytes() for name in ("old", "fractions", "utc", "job-ad", "suspended")
]
FORMS = [(TextReader, text) for text in TEXTS]
FORMS += [(JsonReader, (DATA / "condor-forms/json.log").read_bytes())]
FORMS += [(XmlReader, (DATA / "condor-forms/xml.log").read_bytes())]
KNOWN = [Record(*raw) for text in TEXTS for raw in TextReader(Clock(2e9)).feed(text)]
WAITING = (Phase.QUEUED, Phase.HELD)


def read(reader, *pieces):
    found = [raw for piece in pieces for raw in reader.feed(piece)]
    return [Record(*raw) for raw in found + reader.end()]


def told(kind, *pieces):
    """The events, whatever their places."""
    return [record._replace(offset=0) for record in read(kind(Clock(2e9)), *pieces)]


def complete(kind, data, cut):
    """How many events of the log end within its first `cut` bytes; the last line needs no end."""
    end, count, at = kind.END, 0, 0
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
    one, other = kind(Clock(2e9)), kind(Clock(2e9))
    assert read(one, *pieces) == read(other, text)
    assert one.broken == other.broken
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
    heads = [(r.code, r.key, r.when) for r in told(TextReader, text)]
    reader = TextReader(Clock(2e9))
    found = read(reader, b"\n".join(lines))
    assert [(r.code, r.key, r.when) for r in found] == heads


@given(st.sampled_from(FORMS[-2:]), st.data())
@settings(max_examples=60, deadline=None)
def test_lines_of_noise_among_ads(log, data):
    kind, text = log
    lines = text.split(b"\n")
    for at, line in data.draw(st.lists(st.tuples(st.integers(0, len(lines) - 1), noise), max_size=4)):
        lines.insert(at, line)
    assert [(r.code, r.key, r.when) for r in told(kind, b"\n".join(lines))] == [
        (r.code, r.key, r.when) for r in told(kind, text)
    ]


@given(st.binary(max_size=400), st.sampled_from((TextReader, JsonReader, XmlReader)))
@settings(max_examples=150, deadline=None)
def test_any_bytes(data, kind):
    for record in read(kind(Clock(2e9)), data):
        assert math.isfinite(record.when)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_order_of_events_makes_a_history(data):
    """Of real logs, dropped, repeated, shuffled: times never run backwards, attempts neither overlap nor have gaps in
    them, and waits lie outside of them."""
    events = data.draw(st.lists(st.sampled_from(KNOWN), max_size=40))
    steps = data.draw(st.lists(st.integers(-5, 100), min_size=len(events), max_size=len(events)))
    now, fold = 1000.0, LogFold()
    for event, step in zip(events, steps, strict=True):
        now += step
        fold.take([event._replace(key=(7, 0), when=now)])
    for job, _ in fold.settled():
        check(job)


def check(job):
    previous = -math.inf
    for number, attempt in enumerate(job.attempts, 1):
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
