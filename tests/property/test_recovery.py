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
from packtrain.plan import Checkpoint, Job, Limits, Output, Plan, Recovery, Ref, Resources, RunFolder
from packtrain.state import AttemptStatus, JobState, JobStatus, RunState
from packtrain.state.timing import on_machine
from packtrain.store import RunRow, SqliteStore
from packtrain.supervise import Supervisor
from packtrain.supervise.policies import Rules
from packtrain.supervise.policies.forecast import Forecast
from packtrain.supervise.policies.stop_run import why_halted
from packtrain.supervise.policies.stragglers import _slot_time
from tests.support.chaos_pool import FAILURES, RUN, ChaosEngine, DiedError, Pool

pytestmark = pytest.mark.slow
MOST_SUPERVISORS = 400
SAVES = Checkpoint("ckpt.pt")


class Mortal(Supervisor):
    """One that dies without a word."""

    def _leave(self, reason: str) -> None:
        if reason != "error":
            super()._leave(reason)


def limits():
    return st.builds(Limits, attempts=st.integers(1, 4), wasted_s=st.none() | st.floats(1.0, 300.0))


@st.composite
def plans(draw):
    place = draw(st.none() | st.just(Output(Ref("s3://bucket/place"))))
    jobs = tuple(
        Job(str(n), (), Resources(), draw(limits()), (), output=place, checkpoint=SAVES)
        for n in range(draw(st.integers(1, 8)))
    )
    recovery = Recovery(
        failures=draw(st.none() | st.integers(1, 6)),
        wasted_s=draw(st.none() | st.floats(1.0, 300.0)),
        stop_after=draw(st.integers(0, 3)),
        avoid_s=draw(st.sampled_from((60.0, 3600.0))),
        copies=draw(st.sampled_from((0.0, 0.05, 1.0))),
        least_gain_s=draw(st.sampled_from((1.0, 300.0))),
    )
    return Plan(RUN, "name", "chaos", jobs, recovery=recovery)


def supervise(
    plan: Plan, pool: Pool, root: Path, store: SqliteStore, many_sites: bool, reopen: bool = False
) -> RunState:
    """One supervisor after the other, until the run has ended. One of them opens its jobs again."""
    for _ in range(MOST_SUPERVISORS):
        engine = ChaosEngine(pool, many_sites)
        supervisor = Mortal(plan, RunFolder(root), store, engine, clock=lambda: pool.now)
        try:
            return supervisor.run(reopen=reopen and not is_reopened(store))
        except DiedError:
            pool.now += 60.0  # its lease runs out
    raise AssertionError("the run does not end")


def is_reopened(store: SqliteStore) -> bool:
    return any(one.event.data.get("action") == "reopen" for one in store.events(RUN))


class Person:
    """Cancels a job now and then, while somebody supervises."""

    def __init__(self, plan: Plan, pool: Pool, store: SqliteStore) -> None:
        self._jobs, self._pool, self._store = [job.id for job in plan.jobs], pool, store
        self.cancelled: list[str] = []

    def __call__(self) -> None:
        job, emitter = self._pool.chance.choice(self._jobs), f"cli-{len(self.cancelled)}"
        self.cancelled.append(job)
        about = {"action": "cancel", "reason": "enough"}
        self._store.append([Event(RUN, job, emitter, 1, kinds.REQUESTED, self._pool.now, 1.0, about)])


def played(plan: Plan, pool: Pool, many_sites: bool, people: bool = False, reopen: bool = False):
    """The state at the end, everything that was stored, and which jobs a person cancelled."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        store = SqliteStore(root / "store.db", clock=lambda: pool.now)
        created = Event(RUN, "", "cli", 1, kinds.RUN_CREATED, 1.0, 1.0, {"points": {job.id: {} for job in plan.jobs}})
        store.add_run(RunRow(RUN, "name", "chaos", root, 1.0), created)
        person = Person(plan, pool, store)
        pool.person = person if people else pool.person
        state = supervise(plan, pool, root, store, many_sites)
        done = {job.id: job.verdict.emitter for job in state.jobs.values() if job.status is JobStatus.SUCCEEDED}
        if reopen:
            person.cancelled.clear()
            state = supervise(plan, pool, root, store, many_sites, reopen=True)
            assert {job: state.jobs[job].verdict.emitter for job in done} == done, "what has succeeded stays so"
        return state, store.events(RUN), set(person.cancelled)


@settings(max_examples=60, deadline=None)
@given(
    plans(),
    st.integers(0, 2**32),
    st.integers(0, 60),
    st.booleans(),
    st.dictionaries(st.sampled_from("01234"), st.sampled_from(FAILURES), max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_whatever_happens(
    plan: Plan, seed: int, calm_after: int, many_sites: bool, born_to_fail, people: bool, reopen: bool
) -> None:
    pool = Pool(Random(seed), calm_after, born_to_fail)
    state, stored, cancelled = played(plan, pool, many_sites, people, reopen)
    assert set(state.jobs) == {job.id for job in plan.jobs}
    assert state.finished
    assert_outputs_are_accepted_once(state, pool)
    assert {job.id for job in state.jobs.values() if job.status is JobStatus.CANCELLED} <= cancelled
    assert not any(job.open_requests for job in state.jobs.values()), "everybody gets an answer"
    assert_budgets_are_kept(plan, many_sites, stored)
    assert not pool.beside or plan.jobs[0].output is None, "nobody writes to the user's place beside another"
    assert not [d for d, task in pool.tasks.items() if task.status != "gone" and not task.cancelled], "none is left"


@pytest.mark.parametrize("saves", [False, True])
def test_late_jobs_are_moved_or_copied_meanwhile(saves: bool) -> None:
    """What the test above is about does happen: two copies of a job alive, both of which end well; and moves."""
    place = Output(Ref("s3://bucket/place")) if saves else None
    jobs = tuple(Job(str(n), (), Resources(), Limits(9), (), output=place, checkpoint=SAVES) for n in range(8))
    plan = Plan(RUN, "name", "chaos", jobs, recovery=Recovery(copies=1.0, least_gain_s=1.0, stop_after=0))
    decided, beside, twice = set(), set(), 0
    for seed in range(8):
        pool = Pool(Random(seed), 40, {}, frozenset("01"))
        state, stored, _ = played(plan, pool, True)
        assert_outputs_are_accepted_once(state, pool)
        beside |= pool.beside
        decided |= {one.event.data["action"] for one in stored if one.event.kind == kinds.DECIDED}
        twice += sum(len(done) > 1 for job in state.jobs.values() if (done := succeeded(job)))
    assert ({"move"} if saves else {"accept"}) <= decided
    assert saves or twice > 3
    assert bool(beside) != saves, "only what comes home apart is ever done by two at once"


def succeeded(job: JobState) -> set[str]:
    return {attempt.decision for attempt in job.attempts if attempt.status is AttemptStatus.SUCCEEDED}


def assert_outputs_are_accepted_once(state: RunState, pool: Pool) -> None:
    for job in state.jobs.values():
        accepted = pool.accepted.get(job.id, set())
        assert len(accepted) <= 1
        if job.status is JobStatus.SUCCEEDED:
            (winner,) = [a for a in job.attempts if a.emitter == job.verdict.emitter]
            assert accepted == {winner.decision}
        elif job.status is JobStatus.CANCELLED:
            assert job.verdict.reason == "enough"
        else:
            assert job.verdict.reason and job.verdict.failure, "given up with a reason"


def assert_budgets_are_kept(plan: Plan, many_sites: bool, stored) -> None:
    """What a supervisor knew when it decided is what was in the store by then. What a pool starts again by itself while
    nobody looks is not decided here."""
    rules = Rules.of(plan, Capabilities("chaos", False, 1, 1, 0, many_sites=many_sites))
    state, decided = RunState(RUN, {job.id: JobState(job.id) for job in plan.jobs}), set()
    for one in stored:
        action = one.event.data["action"] if one.event.kind == kinds.DECIDED else ""
        if action in ("submit", "release"):
            assert_job_may_go_on(state.jobs[one.event.job], rules.limits(one.event.job), action)
        if action == "move" or one.event.data.get("copy_of"):
            assert_little_is_done_twice(state, one.event, plan.recovery.copies)
        if action == "submit":
            assert one.event.data["id"] not in decided, "a decision is made once"
            decided.add(one.event.data["id"])
            assert why_halted(state, rules) == ("", "")
        state.apply(one.event, one.arrived)


def assert_job_may_go_on(job: JobState, given: Limits, action: str) -> None:
    assert len(job.spent) < given.attempts
    wasted = sum(on_machine(job, attempt) for attempt in job.spent)
    assert action == "release" or given.wasted_s is None or wasted < given.wasted_s


def assert_little_is_done_twice(state: RunState, event: Event, share: float) -> None:
    """What attempts lose that were, or are now, moved before they saved anything, counted here by itself."""
    now, moved = event.wall, [(job, decision) for job in state.jobs.values() for decision in job.moves]
    moved += [(state.jobs[event.job], event.data["target"])] if event.data["action"] == "move" else []
    lost = sum(lost_by(job, decision, now) for job, decision in moved)
    assert lost <= share * _slot_time(state, Forecast.of(state, now)) + 1e-6


def lost_by(job: JobState, decision: str, now: float) -> float:
    last = [attempt for attempt in job.attempts if attempt.decision == decision][-1]
    ran = last.began_at and not (last.checkpoint or last.restored or last.status is AttemptStatus.SUCCEEDED)
    return min(last.over_at or now, job.changed_at if decision in job.moves else now) - last.began_at if ran else 0.0
