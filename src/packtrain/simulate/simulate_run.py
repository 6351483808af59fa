"""One run, played: jobs, a world, a policy and a seed in, a history out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from packtrain.engines.api import min_live_interval_s
from packtrain.plan import CheckpointConfig, Job, Location, Output, Plan, Resources, RunFolder
from packtrain.report.gc_pause import gc_paused
from packtrain.report.history import FailureCategory, JobHistory, Outcome
from packtrain.report.history import JobRecord as JobOfHistory
from packtrain.report.readers.end_status import classify_job
from packtrain.simulate.event_queue import EventQueue
from packtrain.simulate.job_behaviour import SessionEnd
from packtrain.simulate.memory_store import MemoryEventStore
from packtrain.simulate.pool_model import PoolModel
from packtrain.simulate.scenarios import Scenario
from packtrain.simulate.simulated_engine import SimulatedEngine
from packtrain.simulate.simulated_pool import SimulatedPool
from packtrain.simulate.slot_session import SimulatedAttempt
from packtrain.state import RunState
from packtrain.supervise import Supervisor

RUN_ID = "simulated"
_NO_FOLDER = RunFolder(Path("/nonexistent"))  # nothing is read or written: agents speak through the engine
_MAX_POLL_INTERVAL_S, _MIN_POLLS_PER_JOB = 30.0, 300  # at most so long, at least so many while a job computes
_MAX_PROGRESS_INTERVAL_S, _MIN_PROGRESS_REPORTS, _MAX_REPORTS_PER_S = 900.0, 12, 2.0
_MAX_STRAGGLER_CHECKS = 40.0
_LARGE_RUN_JOBS, _MAX_INTERVAL_FACTOR = (
    10_000,
    8.0,
)  # from so many jobs on everything is done less often, at most so many times
_STILL_RUNNING = SessionEnd(Outcome.RUNNING, FailureCategory.NONE)


def simulate_run(model: PoolModel, scenario: Scenario, n_jobs: int, seed: int) -> JobHistory:
    """The same arguments, the same history."""
    with gc_paused():
        played = _run_supervised if scenario.is_supervised else _run_unsupervised
        return played(model, scenario, n_jobs, seed)


def _run_unsupervised(model: PoolModel, scenario: Scenario, n_jobs: int, seed: int) -> JobHistory:
    """Submitted once; what becomes of it is what the pool makes of it."""
    endings: dict[str, SessionEnd] = {}

    def on_event(attempt: SimulatedAttempt, event: str) -> None:
        if event == "ended" and attempt.session is not None and attempt.session.end is not None:
            endings[attempt.job_id] = attempt.session.end

    kernel = EventQueue()
    pool = SimulatedPool(model, scenario.behaviour, kernel, seed, on_event)
    for number in range(n_jobs):
        pool.submit(SimulatedAttempt(str(number), str(number), 0.0))
    while kernel.run_next():
        pass
    made = (pool.job_history(str(number), endings.get(str(number), _STILL_RUNNING), True) for number in range(n_jobs))
    return _make_history(model, scenario, made, seed)


def _run_supervised(model: PoolModel, scenario: Scenario, n_jobs: int, seed: int) -> JobHistory:
    state, engine = run_supervisor(model, scenario, n_jobs, seed)
    endings = {name: _job_end(state, name) for name in state.jobs}
    del state  # it takes more memory than all the rest
    made = (engine.pool.job_history(name, ending, True) for name, ending in endings.items())
    return _make_history(model, scenario, made, seed)


def _make_history(model: PoolModel, scenario: Scenario, jobs: Iterable[JobOfHistory], seed: int) -> JobHistory:
    told = f"Nothing of this happened: it is a simulated run, with seed {seed}, in a pool as of {model.name}."
    return JobHistory(f"{model.name}, {scenario.name}", "simulation", tuple(jobs), limitations=(told,))


def run_supervisor(model: PoolModel, scenario: Scenario, n_jobs: int, seed: int) -> tuple[RunState, SimulatedEngine]:
    """The unchanged supervisor under a virtual clock."""
    engine = SimulatedEngine(RUN_ID, model, scenario.behaviour, seed, **_intervals(model, n_jobs))
    store = MemoryEventStore(engine.clock, keep_events=False)
    supervisor = Supervisor(
        _make_plan(scenario, n_jobs), _NO_FOLDER, store, engine, engine.clock, monotonic=engine.clock
    )
    engine.needs_clock_tick = lambda: supervisor.needs_clock_tick
    supervisor.state.drop_finished = True
    state = supervisor.run()
    engine.needs_clock_tick = lambda: False
    return state, engine


def _intervals(model: PoolModel, n_jobs: int) -> dict[str, float]:
    """How often the supervisor looks, and agents tell how far they are: as often as matters to jobs of that length; the
    more agents, the less often, as in real pools; and the more jobs, the less often, since thousands tell as much."""
    usual = (
        sum(site.n_slots * (site.compute_s.mean + site.warm_transfer_s.mean) for site in model.sites) / model.n_slots
    )
    rarely = max(1.0, min(_MAX_INTERVAL_FACTOR, n_jobs / _LARGE_RUN_JOBS))
    told_s = max(
        min(_MAX_PROGRESS_INTERVAL_S, usual / _MIN_PROGRESS_REPORTS),
        min(n_jobs, model.n_slots) / _MAX_REPORTS_PER_S,
        min_live_interval_s(n_jobs),
    )
    return {
        "pause_s": min(_MAX_POLL_INTERVAL_S, usual / _MIN_POLLS_PER_JOB) * rarely,
        "glimpse_s": told_s,
        "surveys": _MAX_STRAGGLER_CHECKS / rarely,
    }


def _make_plan(scenario: Scenario, n_jobs: int) -> Plan:
    usual = Job("", (), Resources(), scenario.limits, ())
    if scenario.behaviour.checkpoint_interval_s is not None:  # at a place that every attempt reaches
        usual = replace(usual, checkpoint=CheckpointConfig("model"), output=Output(Location("s3://nowhere")))
    made = tuple(replace(usual, id=str(number)) for number in range(n_jobs))
    return Plan(RUN_ID, RUN_ID, "htcondor", made, recovery=scenario.recovery)


def _job_end(state: RunState, job_id: str) -> SessionEnd:
    end = classify_job(state.jobs[job_id])
    return SessionEnd(end.outcome, end.category, end.reason)
