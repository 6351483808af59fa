"""Any sequence of events of a run, in any order, yields a consistent history."""

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
def test_spans_are_consecutive(events: list[Event], rng: Random) -> None:
    run = events[0].run
    history = read_run_history(fold(run, events), events)
    for job in history.jobs:
        for number, execution in enumerate(job.executions, 1):
            assert execution.number == number
            assert execution.spans
            assert all(span.end >= span.start for span in execution.spans)
            assert all(abs(span.end - following.start) < 1e-6 for span, following in pairwise(execution.spans))
            assert -1e-6 <= execution.retained_compute_s <= execution.seconds_in(Phase.EXECUTE) + 1e-6
        assert all(wait.end > wait.start and wait.phase in (Phase.QUEUED, Phase.HELD) for wait in job.waits)
    shuffled = [*events, *events]
    rng.shuffle(shuffled)
    reread = read_run_history(fold(run, shuffled), shuffled)
    assert {job.id: job for job in reread.jobs} == {job.id: job for job in history.jobs}
    assert reread.limitations == history.limitations
