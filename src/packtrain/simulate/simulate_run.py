"""One run, played: jobs, a world, a policy and a seed in, a history out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from packtrain.engines.htcondor.submit_description import live_s
from packtrain.plan import Checkpoint, Job, Output, Plan, Ref, Resources, RunFolder
from packtrain.report.gc_pause import no_garbage
from packtrain.report.history import Category, History, Outcome
from packtrain.report.history import Job as JobOfHistory
from packtrain.report.readers.end_status import end_of_job
from packtrain.simulate.event_queue import Kernel
from packtrain.simulate.job_behaviour import Ending
from packtrain.simulate.memory_store import MemoryStore
from packtrain.simulate.pool_model import World
from packtrain.simulate.scenarios import Policy
from packtrain.simulate.simulated_engine import SimulatedEngine
from packtrain.simulate.simulated_pool import Pool
from packtrain.simulate.slot_session import Task
from packtrain.state import RunState
from packtrain.supervise import Supervisor

RUN = "simulated"
_NOWHERE = RunFolder(Path("/nonexistent"))  # nothing is read or written: agents speak through the engine
_LOOK_S, _LOOKS = 30.0, 300  # at most so long, at least so many while a job computes
_GLIMPSE_S, _GLIMPSES, _AGENTS_PER_S = 900.0, 12, 2.0
_SURVEYS = 40.0
_MANY, _MOST_RARELY = 10_000, 8.0  # from so many jobs on everything is done less often, at most so many times
_NEVER_ENDED = Ending(Outcome.RUNNING, Category.NONE)


def play(world: World, policy: Policy, jobs: int, seed: int) -> History:
    """The same arguments, the same history."""
    with no_garbage():
        played = _supervised if policy.supervised else _alone
        return played(world, policy, jobs, seed)


def _alone(world: World, policy: Policy, jobs: int, seed: int) -> History:
    """Submitted once; what becomes of it is what the pool makes of it."""
    endings: dict[str, Ending] = {}

    def hear(task: Task, what: str) -> None:
        if what == "ended" and task.stay is not None and task.stay.ending is not None:
            endings[task.job] = task.stay.ending

    kernel = Kernel()
    pool = Pool(world, policy.behaviour, kernel, seed, hear)
    for number in range(jobs):
        pool.submit(Task(str(number), str(number), 0.0))
    while kernel.step():
        pass
    made = (pool.job(str(number), endings.get(str(number), _NEVER_ENDED), True) for number in range(jobs))
    return _history(world, policy, made, seed)


def _supervised(world: World, policy: Policy, jobs: int, seed: int) -> History:
    state, engine = supervise(world, policy, jobs, seed)
    endings = {name: _ending(state, name) for name in state.jobs}
    del state  # it takes more memory than all the rest
    made = (engine.pool.job(name, ending, True) for name, ending in endings.items())
    return _history(world, policy, made, seed)


def _history(world: World, policy: Policy, jobs: Iterable[JobOfHistory], seed: int) -> History:
    told = f"Nothing of this happened: it is a simulated run, with seed {seed}, in a pool as of {world.name}."
    return History(f"{world.name}, {policy.name}", "simulation", tuple(jobs), untold=(told,))


def supervise(world: World, policy: Policy, jobs: int, seed: int) -> tuple[RunState, SimulatedEngine]:
    """The unchanged supervisor under a virtual clock."""
    engine = SimulatedEngine(RUN, world, policy.behaviour, seed, **_often(world, jobs))
    store = MemoryStore(engine.clock, keep=False)
    supervisor = Supervisor(_plan(policy, jobs), _NOWHERE, store, engine, engine.clock, mono=engine.clock)
    engine.restless = lambda: supervisor.restless
    supervisor.state.forgets = True
    state = supervisor.run()
    engine.restless = lambda: False
    return state, engine


def _often(world: World, jobs: int) -> dict[str, float]:
    """How often the supervisor looks, and agents tell how far they are: as often as matters to jobs of that length; the
    more agents, the less often, as in real pools; and the more jobs, the less often, since thousands tell as much."""
    usual = sum(site.slots * (site.compute.mean + site.warm.mean) for site in world.sites) / world.slots
    rarely = max(1.0, min(_MOST_RARELY, jobs / _MANY))
    told_s = max(min(_GLIMPSE_S, usual / _GLIMPSES), min(jobs, world.slots) / _AGENTS_PER_S, live_s(jobs))
    return {"pause_s": min(_LOOK_S, usual / _LOOKS) * rarely, "glimpse_s": told_s, "surveys": _SURVEYS / rarely}


def _plan(policy: Policy, jobs: int) -> Plan:
    usual = Job("", (), Resources(), policy.limits, ())
    if policy.behaviour.checkpoint_s is not None:  # at a place that every attempt reaches
        usual = replace(usual, checkpoint=Checkpoint("model"), output=Output(Ref("s3://nowhere")))
    made = tuple(replace(usual, id=str(number)) for number in range(jobs))
    return Plan(RUN, RUN, "htcondor", made, recovery=policy.recovery)


def _ending(state: RunState, name: str) -> Ending:
    end = end_of_job(state.jobs[name])
    return Ending(end.outcome, end.category, end.reason)
