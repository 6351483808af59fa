"""For any pool events, waits and sessions cover the time from submission to end, without overlap or gap."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.condor.hold_codes import HOLD_CODES
from packtrain.engines.htcondor.tracking.job_tracker import JobTracker
from packtrain.events import Event, kinds
from packtrain.plan import RunFolder
from packtrain.report.history import JobHistory, JobRecord
from packtrain.report.readers.files import read_history
from packtrain.report.readers.run_store import read_run_history
from packtrain.simulate.memory_store import MemoryEventStore
from packtrain.state import fold
from packtrain.state.slot_time import Phase, PhaseSpan, PoolEvent, PoolEventKind, SlotTimeline
from packtrain.supervise.collector import Collector
from tests.support.condor_logs import UserLogBuilder, parse_events

WAITS = (Phase.QUEUED, Phase.HELD)
MIDDLE_KINDS = sorted(set(PoolEventKind) - {PoolEventKind.SUBMITTED, PoolEventKind.GONE}, key=lambda kind: kind.value)
EVENTS = st.lists(st.tuples(st.sampled_from(MIDDLE_KINDS), st.integers(0, 9), st.booleans()), max_size=30)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [(direction, state) for direction in ("in", "out") for state in ("queued", "started", "finished")]
            + [("execute", ""), ("evict", ""), ("hold", "1"), ("hold", "47"), ("release", ""), ("reconnect_failed", "")]
        ),
        st.integers(0, 2),
    ),
    max_size=20,
)


def make_events(generated: list[tuple[PoolEventKind, int, bool]]) -> list[PoolEvent]:
    now, number, events = 100.0, 0, [PoolEvent(PoolEventKind.SUBMITTED, 100.0)]
    for kind, delay_s, has_exited in generated:
        now, number = now + delay_s, number + (kind is PoolEventKind.STARTED)
        events.append(PoolEvent(kind, now, number, has_exited))
    return [*events, PoolEvent(PoolEventKind.GONE, now + 1)]


def all_spans(timeline: SlotTimeline, now: float) -> list[PhaseSpan]:
    spans = [*timeline.waits(now), *(span for session in timeline.sessions for span in session.spans(now))]
    return sorted((span for span in spans if span.end > span.start), key=lambda span: span.start)


@settings(max_examples=500)
@given(EVENTS)
def test_every_second_is_in_one_span(generated: list[tuple[PoolEventKind, int, bool]]) -> None:
    events = make_events(generated)
    end = events[-1].at
    spans = all_spans(SlotTimeline(events), end)
    assert (spans[0].start, spans[-1].end) == (100.0, end)
    assert all(span.end == following.start for span, following in pairwise(spans))
    assert sum(span.duration_s for span in spans) == end - 100.0


@given(EVENTS, st.integers(0, 9))
def test_unfinished_timeline_lasts_until_now(generated: list[tuple[PoolEventKind, int, bool]], delay_s: int) -> None:
    """A timeline that is still open covers the time up to any later moment, and asking does not change it."""
    timeline = SlotTimeline(make_events(generated)[:-1])
    for now in (timeline.last_event_at + delay_s, timeline.last_event_at):
        assert sum(span.duration_s for span in all_spans(timeline, now)) == now - 100.0


@given(EVENTS)
def test_sums_equal_spans(generated: list[tuple[PoolEventKind, int, bool]]) -> None:
    events = make_events(generated)
    timeline, now = SlotTimeline(events), events[-1].at
    waits_s = sum(timeline.wait_s(phase) for phase in WAITS)
    assert waits_s + sum(session.duration_s(now) for session in timeline.sessions) == now - 100.0
    for session in timeline.sessions:
        assert 0 <= session.transfer_s(now) <= session.duration_s(now)
        assert 0 <= session.checkpointed_s <= session.duration_s(now)
        assert session.ended_at is not None


@given(EVENTS)
def test_every_start_is_one_session(generated: list[tuple[PoolEventKind, int, bool]]) -> None:
    events = make_events(generated)
    n_starts = sum(event.kind is PoolEventKind.STARTED for event in events)
    timeline = SlotTimeline(events)
    assert [s.number for s in timeline.sessions if s.has_executed] == list(range(1, n_starts + 1))
    assert timeline.find_session(n_starts + 1) is None


def write_log(steps: list[tuple[tuple[str, str], int]]) -> bytes:
    log, second = UserLogBuilder().set_second(1).submit(0, "0", "0-1"), 1
    for (what, detail), delay_s in steps:
        second += delay_s
        log.set_second(second)
        if what in ("in", "out"):
            log.transfer(0, what, detail)
        elif what == "hold":
            log.hold(0, "a reason", int(detail))
        else:
            getattr(log, what)(0)
    return log.set_second(second + 1).terminate(0, 0).data


def read_log_as_run(data: bytes, rng: Random) -> JobHistory:
    """Read the log as the engine and the supervisor do: through stored events, which are read in any order."""
    log_events, tracker = parse_events(data), JobTracker(lambda first_attempt_id: ())
    decision = {"action": "submit", "attempt": "0-1", "epoch": 1, "reason": "r"}
    decided_at = log_events[0].timestamp
    events = [Event("r", "0", "supervisor-1", 1, kinds.DECISION_MADE, decided_at, decided_at, decision)]
    store = MemoryEventStore(lambda: decided_at)
    updates = [update for log_event in log_events for update in tracker.apply(log_event)]
    Collector(store, "r", RunFolder(Path("/nonexistent")), writes_journals=False).collect(fold("r", ()), updates)
    events += [row.event for row in store.events("r")]
    events += events
    rng.shuffle(events)
    return read_run_history(fold("r", events), events)


def phase_totals(job: JobRecord) -> Counter[Phase]:
    totals: Counter[Phase] = Counter()
    for span in (*job.waits, *(span for execution in job.executions for span in execution.spans)):
        totals[span.phase] += span.duration_s
    return +totals


@pytest.mark.parametrize("code", sorted(HOLD_CODES))
def test_run_and_log_agree_on_holds(code: int, tmp_path: Path) -> None:
    """A hold has the same category, whether it is read from the log or from the stored events."""
    log = UserLogBuilder().submit(0, "0", "0-1").execute(0).hold(0, "a reason", code)
    path = tmp_path / "run.log"
    path.write_bytes(log.data)
    (from_log,), (from_run,) = read_history([str(path)]).jobs, read_log_as_run(log.data, Random(1)).jobs
    assert from_log.category is from_run.category
    assert from_log.executions[0].category is from_run.executions[0].category


@settings(max_examples=200, deadline=None)
@given(STEPS, st.randoms(use_true_random=False))
def test_run_and_log_agree(steps: list[tuple[tuple[str, str], int]], rng: Random) -> None:
    """The stored events of a run and the HTCondor log that they come from give the same totals."""
    data = write_log(steps)
    with TemporaryDirectory() as folder:
        path = Path(folder, "run.log")
        path.write_bytes(data)
        (from_log,) = read_history([str(path)]).jobs
    (from_run,) = read_log_as_run(data, rng).jobs
    assert phase_totals(from_run) == phase_totals(from_log)
