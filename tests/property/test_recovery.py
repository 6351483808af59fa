"""Whatever a pool does, and whenever supervisors die: no job is lost, none has two accepted outputs, budgets are kept,
and every run ends."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.engines.api import Capabilities
from packtrain.events import Event, kinds
from packtrain.plan import CheckpointConfig, Job, Limits, Location, Output, Plan, Recovery, Resources, RunFolder
from packtrain.state import ExecutionStatus, JobState, JobStatus, RunState
from packtrain.state.timing import slot_seconds
from packtrain.store import RunInfo, SqliteStore
from packtrain.supervise import Supervisor
from packtrain.supervise.policies import PolicyConfig
from packtrain.supervise.policies.forecast import Forecast
from packtrain.supervise.policies.stop_run import find_stop_reason
from packtrain.supervise.policies.stragglers import _total_slot_s
from tests.support.chaos_pool import FAILURE_KINDS, RUN, ChaosEngine, ChaosPool, SupervisorDied

pytestmark = pytest.mark.slow
MOST_SUPERVISORS = 400
SAVES = CheckpointConfig("ckpt.pt")


class Mortal(Supervisor):
    """One that dies without a word."""

    def _release_lease(self, reason: str) -> None:
        if reason != "error":
            super()._release_lease(reason)


def limits():
    return st.builds(Limits, max_attempts=st.integers(1, 4), max_wasted_time_s=st.none() | st.floats(1.0, 300.0))


@st.composite
def plans(draw):
    place = draw(st.none() | st.just(Output(Location("s3://bucket/place"))))
    jobs = tuple(
        Job(str(n), (), Resources(), draw(limits()), (), output=place, checkpoint=SAVES)
        for n in range(draw(st.integers(1, 8)))
    )
    recovery = Recovery(
        max_failures=draw(st.none() | st.integers(1, 6)),
        max_wasted_time_s=draw(st.none() | st.floats(1.0, 300.0)),
        stop_after_identical_failures=draw(st.integers(0, 3)),
        avoid_for_s=draw(st.sampled_from((60.0, 3600.0))),
        straggler_budget=draw(st.sampled_from((0.0, 0.05, 1.0))),
        min_gain_s=draw(st.sampled_from((1.0, 300.0))),
    )
    return Plan(RUN, "name", "chaos", jobs, recovery=recovery)


def supervise(
    plan: Plan, pool: ChaosPool, root: Path, store: SqliteStore, many_sites: bool, reopen: bool = False
) -> RunState:
    """One supervisor after the other, until the run has ended. One of them opens its jobs again."""
    for _ in range(MOST_SUPERVISORS):
        engine = ChaosEngine(pool, many_sites)
        supervisor = Mortal(plan, RunFolder(root), store, engine, clock=lambda: pool.now)
        try:
            return supervisor.run(reopen=reopen and not is_reopened(store))
        except SupervisorDied:
            pool.now += 60.0  # its lease runs out
    raise AssertionError("the run does not end")


def is_reopened(store: SqliteStore) -> bool:
    return any(one.event.data.get("action") == "reopen" for one in store.events(RUN))


class Person:
    """Cancels a job now and then, while somebody supervises."""

    def __init__(self, plan: Plan, pool: ChaosPool, store: SqliteStore) -> None:
        self._jobs, self._pool, self._store = [job.id for job in plan.jobs], pool, store
        self.cancelled: list[str] = []

    def __call__(self) -> None:
        job, emitter = self._pool.rng.choice(self._jobs), f"cli-{len(self.cancelled)}"
        self.cancelled.append(job)
        about = {"action": "cancel", "reason": "enough"}
        self._store.append([Event(RUN, job, emitter, 1, kinds.USER_REQUESTED, self._pool.now, 1.0, about)])


def played(plan: Plan, pool: ChaosPool, many_sites: bool, people: bool = False, reopen: bool = False):
    """The state at the end, everything that was stored, and which jobs a person cancelled."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        store = SqliteStore(root / "store.db", clock=lambda: pool.now)
        created = Event(RUN, "", "cli", 1, kinds.RUN_CREATED, 1.0, 1.0, {"points": {job.id: {} for job in plan.jobs}})
        store.add_run(RunInfo(RUN, "name", "chaos", root, 1.0), created)
        person = Person(plan, pool, store)
        pool.on_user_action = person if people else pool.on_user_action
        state = supervise(plan, pool, root, store, many_sites)
        done = {job.id: job.result.emitter for job in state.jobs.values() if job.status is JobStatus.SUCCEEDED}
        if reopen:
            person.cancelled.clear()
            state = supervise(plan, pool, root, store, many_sites, reopen=True)
            assert {job: state.jobs[job].result.emitter for job in done} == done, "what has succeeded stays so"
        return state, store.events(RUN), set(person.cancelled)


@settings(max_examples=60, deadline=None)
@given(
    plans(),
    st.integers(0, 2**32),
    st.integers(0, 60),
    st.booleans(),
    st.dictionaries(st.sampled_from("01234"), st.sampled_from(FAILURE_KINDS), max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_whatever_happens(
    plan: Plan, seed: int, calm_after: int, many_sites: bool, born_to_fail, people: bool, reopen: bool
) -> None:
    pool = ChaosPool(Random(seed), calm_after, born_to_fail)
    state, stored, cancelled = played(plan, pool, many_sites, people, reopen)
    assert set(state.jobs) == {job.id for job in plan.jobs}
    assert state.is_finished
    assert_outputs_are_accepted_once(state, pool)
    assert {job.id for job in state.jobs.values() if job.status is JobStatus.CANCELLED} <= cancelled
    assert not any(job.open_requests for job in state.jobs.values()), "everybody gets an answer"
    assert_budgets_are_kept(plan, many_sites, stored)
    assert not pool.jobs_with_concurrent_attempts or plan.jobs[0].output is None, (
        "nobody writes to the user's place beside another"
    )
    assert not [d for d, task in pool.tasks.items() if task.status != "gone" and not task.cancelled], "none is left"


@pytest.mark.parametrize("saves", [False, True])
def test_late_jobs_are_moved_or_copied_meanwhile(saves: bool) -> None:
    """What the test above is about does happen: two copies of a job alive, both of which end well; and moves."""
    place = Output(Location("s3://bucket/place")) if saves else None
    jobs = tuple(Job(str(n), (), Resources(), Limits(9), (), output=place, checkpoint=SAVES) for n in range(8))
    plan = Plan(
        RUN,
        "name",
        "chaos",
        jobs,
        recovery=Recovery(straggler_budget=1.0, min_gain_s=1.0, stop_after_identical_failures=0),
    )
    decided, beside, twice = set(), set(), 0
    for seed in range(8):
        pool = ChaosPool(Random(seed), 40, {}, frozenset("01"))
        state, stored, _ = played(plan, pool, True)
        assert_outputs_are_accepted_once(state, pool)
        beside |= pool.jobs_with_concurrent_attempts
        decided |= {one.event.data["action"] for one in stored if one.event.kind == kinds.DECISION_MADE}
        twice += sum(len(done) > 1 for job in state.jobs.values() if (done := succeeded(job)))
    assert ({"move"} if saves else {"accept"}) <= decided
    assert saves or twice > 3
    assert bool(beside) != saves, "only what comes home apart is ever done by two at once"


def succeeded(job: JobState) -> set[str]:
    return {attempt.attempt_id for attempt in job.executions if attempt.status is ExecutionStatus.SUCCEEDED}


def assert_outputs_are_accepted_once(state: RunState, pool: ChaosPool) -> None:
    for job in state.jobs.values():
        accepted = pool.committed_attempts.get(job.id, set())
        assert len(accepted) <= 1
        if job.status is JobStatus.SUCCEEDED:
            (winner,) = [a for a in job.executions if a.emitter == job.result.emitter]
            assert accepted == {winner.attempt_id}
        elif job.status is JobStatus.CANCELLED:
            assert job.result.reason == "enough"
        else:
            assert job.result.reason and job.result.failure, "given up with a reason"


def assert_budgets_are_kept(plan: Plan, many_sites: bool, stored) -> None:
    """What a supervisor knew when it decided is what was in the store by then. What a pool starts again by itself while
    nobody looks is not decided here."""
    rules = PolicyConfig.from_plan(plan, Capabilities("chaos", False, 1, 1, 0, has_multiple_sites=many_sites))
    state, decided = RunState(RUN, {job.id: JobState(job.id) for job in plan.jobs}), set()
    for one in stored:
        action = one.event.data["action"] if one.event.kind == kinds.DECISION_MADE else ""
        if action in ("submit", "release"):
            assert_job_may_go_on(state.jobs[one.event.job], rules.limits(one.event.job), action)
        if action == "move" or one.event.data.get("copy_of"):
            assert_little_is_done_twice(state, one.event, plan.recovery.straggler_budget)
        if action == "submit":
            assert one.event.data["attempt"] not in decided, "a decision is made once"
            decided.add(one.event.data["attempt"])
            assert find_stop_reason(state, rules) == ("", "")
        state.apply(one.event, one.received_at)


def assert_job_may_go_on(job: JobState, given: Limits, action: str) -> None:
    assert len(job.counted_failures) < given.max_attempts
    wasted = sum(slot_seconds(job, attempt) for attempt in job.counted_failures)
    assert action == "release" or given.max_wasted_time_s is None or wasted < given.max_wasted_time_s


def assert_little_is_done_twice(state: RunState, event: Event, share: float) -> None:
    """What attempts lose that were, or are now, moved before they saved anything, counted here by itself."""
    now, moved = event.wall, [(job, decision) for job in state.jobs.values() for decision in job.moves]
    moved += [(state.jobs[event.job], event.data["attempt"])] if event.data["action"] == "move" else []
    lost = sum(lost_by(job, decision, now) for job, decision in moved)
    assert lost <= share * _total_slot_s(state, Forecast.from_state(state, now)) + 1e-6


def lost_by(job: JobState, decision: str, now: float) -> float:
    last = [attempt for attempt in job.executions if attempt.attempt_id == decision][-1]
    ran = last.started_at and not (
        last.checkpoint or last.restored_checkpoint or last.status is ExecutionStatus.SUCCEEDED
    )
    return min(last.ended_at or now, job.changed_at if decision in job.moves else now) - last.started_at if ran else 0.0
