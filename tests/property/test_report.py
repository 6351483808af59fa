"""Whatever supervisors, agents and engines may have written, in whatever order: a run has a history."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.events import Event
from packtrain.report.history import Phase
from packtrain.report.readers.run_store import read_run_history
from packtrain.state import fold
from tests.property.test_state_fold import histories


@settings(max_examples=60, deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_spans_follow_each_other(events: list[Event], chance: Random) -> None:
    run = events[0].run
    history = read_run_history(fold(run, events), events)
    for job in history.jobs:
        for number, attempt in enumerate(job.executions, 1):
            assert attempt.number == number
            assert attempt.spans
            assert all(span.end >= span.start for span in attempt.spans)
            assert all(abs(one.end - other.start) < 1e-6 for one, other in pairwise(attempt.spans))
            assert -1e-6 <= attempt.retained_compute_s <= attempt.seconds_in(Phase.EXECUTE) + 1e-6
        assert all(wait.end > wait.start and wait.phase in (Phase.QUEUED, Phase.HELD) for wait in job.waits)
    shuffled = [*events, *events]
    chance.shuffle(shuffled)
    again = read_run_history(fold(run, shuffled), shuffled)
    assert {job.id: job for job in again.jobs} == {job.id: job for job in history.jobs}
    assert again.limitations == history.limitations
