"""Chaos tests of the supervisor.

For any behavior of the pool and any death of supervisors, no job is lost, no job has two committed outputs, budgets
are kept, and every run ends.
"""

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
MAX_SUPERVISORS = 400
CHECKPOINT = CheckpointConfig("ckpt.pt")


class MortalSupervisor(Supervisor):
    """A supervisor that dies without releasing its lease."""

    def _release_lease(self, reason: str) -> None:
        if reason != "error":
            super()._release_lease(reason)


def limits():
    return st.builds(Limits, max_attempts=st.integers(1, 4), max_wasted_time_s=st.none() | st.floats(1.0, 300.0))


@st.composite
def plans(draw):
    output = draw(st.none() | st.just(Output(Location("s3://bucket/path"))))
    jobs = tuple(
        Job(str(n), (), Resources(), draw(limits()), (), output=output, checkpoint=CHECKPOINT)
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
    """Run one supervisor after another until the run has ended. One of them reopens its jobs."""
    for _ in range(MAX_SUPERVISORS):
        engine = ChaosEngine(pool, many_sites)
        supervisor = MortalSupervisor(plan, RunFolder(root), store, engine, clock=lambda: pool.now)
        try:
            return supervisor.run(reopen=reopen and not is_reopened(store))
        except SupervisorDied:
            pool.now += 60.0  # its lease expires
    raise AssertionError("the run does not end")


def is_reopened(store: SqliteStore) -> bool:
    return any(stored_event.event.data.get("action") == "reopen" for stored_event in store.events(RUN))


class User:
    """Cancels a random job now and then."""

    def __init__(self, plan: Plan, pool: ChaosPool, store: SqliteStore) -> None:
        self._jobs, self._pool, self._store = [job.id for job in plan.jobs], pool, store
        self.cancelled: list[str] = []

    def __call__(self) -> None:
        job, emitter = self._pool.rng.choice(self._jobs), f"cli-{len(self.cancelled)}"
        self.cancelled.append(job)
        data = {"action": "cancel", "reason": "enough"}
        self._store.append([Event(RUN, job, emitter, 1, kinds.USER_REQUESTED, self._pool.now, 1.0, data)])


def play(plan: Plan, pool: ChaosPool, many_sites: bool, has_user: bool = False, reopen: bool = False):
    """Return the state at the end, all stored events, and the jobs that the user cancelled."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        store = SqliteStore(root / "store.db", clock=lambda: pool.now)
        created = Event(RUN, "", "cli", 1, kinds.RUN_CREATED, 1.0, 1.0, {"points": {job.id: {} for job in plan.jobs}})
        store.add_run(RunInfo(RUN, "name", "chaos", root, 1.0), created)
        user = User(plan, pool, store)
        pool.on_user_action = user if has_user else pool.on_user_action
        state = supervise(plan, pool, root, store, many_sites)
        done = {job.id: job.result.emitter for job in state.jobs.values() if job.status is JobStatus.SUCCEEDED}
        if reopen:
            user.cancelled.clear()
            state = supervise(plan, pool, root, store, many_sites, reopen=True)
            assert {job: state.jobs[job].result.emitter for job in done} == done, "succeeded jobs do not change"
        return state, store.events(RUN), set(user.cancelled)


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
def test_invariants_under_chaos(
    plan: Plan, seed: int, calm_after_polls: int, many_sites: bool, failure_by_job, has_user: bool, reopen: bool
) -> None:
    pool = ChaosPool(Random(seed), calm_after_polls, failure_by_job)
    state, stored, cancelled = play(plan, pool, many_sites, has_user, reopen)
    assert set(state.jobs) == {job.id for job in plan.jobs}
    assert state.is_finished
    assert_outputs_committed_once(state, pool)
    assert {job.id for job in state.jobs.values() if job.status is JobStatus.CANCELLED} <= cancelled
    assert not any(job.open_requests for job in state.jobs.values()), "every request is handled"
    assert_budgets_kept(plan, many_sites, stored)
    assert not pool.jobs_with_concurrent_attempts or plan.jobs[0].output is None, (
        "two attempts never write to the same storage"
    )
    assert not [d for d, task in pool.tasks.items() if task.status != "gone" and not task.cancelled], (
        "no attempt is left"
    )


@pytest.mark.parametrize("can_move", [False, True])
def test_slow_jobs_are_moved_or_copied(can_move: bool) -> None:
    """Check that the situations of the test above do occur: moves, and two copies that both succeed."""
    output = Output(Location("s3://bucket/path")) if can_move else None
    jobs = tuple(Job(str(n), (), Resources(), Limits(9), (), output=output, checkpoint=CHECKPOINT) for n in range(8))
    plan = Plan(
        RUN,
        "name",
        "chaos",
        jobs,
        recovery=Recovery(straggler_budget=1.0, min_gain_s=1.0, stop_after_identical_failures=0),
    )
    actions, concurrent_jobs, n_double_successes = set(), set(), 0
    for seed in range(8):
        pool = ChaosPool(Random(seed), 40, {}, frozenset("01"))
        state, stored, _ = play(plan, pool, True)
        assert_outputs_committed_once(state, pool)
        concurrent_jobs |= pool.jobs_with_concurrent_attempts
        actions |= {
            stored_event.event.data["action"]
            for stored_event in stored
            if stored_event.event.kind == kinds.DECISION_MADE
        }
        n_double_successes += sum(len(done) > 1 for job in state.jobs.values() if (done := succeeded(job)))
    assert ({"move"} if can_move else {"accept"}) <= actions
    assert can_move or n_double_successes > 3
    assert bool(concurrent_jobs) != can_move, "only jobs with staged outputs are copied"


def succeeded(job: JobState) -> set[str]:
    return {execution.attempt_id for execution in job.executions if execution.status is ExecutionStatus.SUCCEEDED}


def assert_outputs_committed_once(state: RunState, pool: ChaosPool) -> None:
    for job in state.jobs.values():
        accepted = pool.committed_attempts.get(job.id, set())
        assert len(accepted) <= 1
        if job.status is JobStatus.SUCCEEDED:
            (winner,) = [e for e in job.executions if e.emitter == job.result.emitter]
            assert accepted == {winner.attempt_id}
        elif job.status is JobStatus.CANCELLED:
            assert job.result.reason == "enough"
        else:
            assert job.result.reason and job.result.failure, "a failed job has a reason"


def assert_budgets_kept(plan: Plan, many_sites: bool, stored) -> None:
    """Check each decision against the events that were stored before it.

    Executions that the pool itself starts again are not decided by a supervisor.
    """
    config = PolicyConfig.from_plan(plan, Capabilities("chaos", False, 1, 1, 0, has_multiple_sites=many_sites))
    state, submitted = RunState(RUN, {job.id: JobState(job.id) for job in plan.jobs}), set()
    for stored_event in stored:
        action = stored_event.event.data["action"] if stored_event.event.kind == kinds.DECISION_MADE else ""
        if action in ("submit", "release"):
            assert_job_has_budget(state.jobs[stored_event.event.job], config.limits(stored_event.event.job), action)
        if action == "move" or stored_event.event.data.get("copy_of"):
            assert_lost_work_within_budget(state, stored_event.event, plan.recovery.straggler_budget)
        if action == "submit":
            assert stored_event.event.data["attempt"] not in submitted, "an attempt is submitted once"
            submitted.add(stored_event.event.data["attempt"])
            assert find_stop_reason(state, config) == ("", "")
        state.apply(stored_event.event, stored_event.received_at)


def assert_job_has_budget(job: JobState, limits: Limits, action: str) -> None:
    assert len(job.counted_failures) < limits.max_attempts
    wasted_s = sum(slot_seconds(job, execution) for execution in job.counted_failures)
    assert action == "release" or limits.max_wasted_time_s is None or wasted_s < limits.max_wasted_time_s


def assert_lost_work_within_budget(state: RunState, event: Event, share: float) -> None:
    """Compute the work that is lost by moves without a checkpoint independently, and compare it with the budget."""
    now, moved = event.wall, [(job, attempt_id) for job in state.jobs.values() for attempt_id in job.moves]
    moved += [(state.jobs[event.job], event.data["attempt"])] if event.data["action"] == "move" else []
    lost_s = sum(lost_work_s(job, attempt_id, now) for job, attempt_id in moved)
    assert lost_s <= share * _total_slot_s(state, Forecast.from_state(state, now)) + 1e-6


def lost_work_s(job: JobState, attempt_id: str, now: float) -> float:
    last = [e for e in job.executions if e.attempt_id == attempt_id][-1]
    ran = last.started_at and not (
        last.checkpoint or last.restored_checkpoint or last.status is ExecutionStatus.SUCCEEDED
    )
    return (
        min(last.ended_at or now, job.changed_at if attempt_id in job.moves else now) - last.started_at if ran else 0.0
    )
