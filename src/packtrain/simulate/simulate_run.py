"""Simulate one run: from a pool model, a scenario, a number of jobs and a seed to a history."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from packtrain.engines.api import min_live_interval_s
from packtrain.plan import CheckpointConfig, Job, Location, Output, Plan, Resources, RunFolder
from packtrain.report.history import FailureCategory, JobHistory, Outcome
from packtrain.report.history import JobRecord as JobOfHistory
from packtrain.report.readers.end_status import classify_job
from packtrain.simulate.archiving_state import ArchivingRunState
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
_NO_FOLDER = RunFolder(Path("/nonexistent"))  # unused: agents report through the engine
_MAX_POLL_INTERVAL_S, _MIN_POLLS_PER_JOB = 30.0, 300
_MAX_PROGRESS_INTERVAL_S, _MIN_PROGRESS_REPORTS, _MAX_REPORTS_PER_S = 900.0, 12, 2.0
_MAX_STRAGGLER_CHECKS = 40.0
_LARGE_RUN_JOBS, _MAX_INTERVAL_FACTOR = 10_000, 8.0  # larger runs poll less often, up to this factor
_STILL_RUNNING = SessionEnd(Outcome.RUNNING, FailureCategory.NONE)


def simulate_run(model: PoolModel, scenario: Scenario, n_jobs: int, seed: int) -> JobHistory:
    """Return the history of one simulated run; identical arguments give identical histories."""
    run = _run_supervised if scenario.is_supervised else _run_unsupervised
    with _paused_garbage_collector():
        return run(model, scenario, n_jobs, seed)


@contextmanager
def _paused_garbage_collector() -> Iterator[None]:
    """Pause the search for reference cycles, which would visit the millions of objects of a simulation repeatedly."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _run_unsupervised(model: PoolModel, scenario: Scenario, n_jobs: int, seed: int) -> JobHistory:
    """Submit every job once and let the pool handle failures."""
    ends: dict[str, SessionEnd] = {}

    def on_event(attempt: SimulatedAttempt, event: str) -> None:
        if event == "ended" and attempt.session is not None and attempt.session.end is not None:
            ends[attempt.job_id] = attempt.session.end

    event_queue = EventQueue()
    pool = SimulatedPool(model, scenario.behaviour, event_queue, seed, on_event)
    for number in range(n_jobs):
        pool.submit(SimulatedAttempt(str(number), str(number)))
    while event_queue.run_next():
        pass
    jobs = (pool.job_history(str(number), ends.get(str(number), _STILL_RUNNING), True) for number in range(n_jobs))
    return _make_history(model, scenario, jobs, seed)


def _run_supervised(model: PoolModel, scenario: Scenario, n_jobs: int, seed: int) -> JobHistory:
    state, engine = run_supervisor(model, scenario, n_jobs, seed)
    ends = {job_id: _job_end(state, job_id) for job_id in state.jobs}
    del state  # frees most of the memory
    jobs = (engine.pool.job_history(job_id, end, True) for job_id, end in ends.items())
    return _make_history(model, scenario, jobs, seed)


def _make_history(model: PoolModel, scenario: Scenario, jobs: Iterable[JobOfHistory], seed: int) -> JobHistory:
    note = f"This is a simulated run (seed {seed}) on a model of the pool in {model.name}."
    return JobHistory(f"{model.name}, {scenario.name}", "simulation", tuple(jobs), limitations=(note,))


def run_supervisor(model: PoolModel, scenario: Scenario, n_jobs: int, seed: int) -> tuple[RunState, SimulatedEngine]:
    """Run the unchanged supervisor under a virtual clock."""
    engine = SimulatedEngine(RUN_ID, model, scenario.behaviour, seed, **_intervals(model, n_jobs))
    store = MemoryEventStore(engine.clock, keep_events=False)
    state, plan = ArchivingRunState(RUN_ID, map(str, range(n_jobs))), _make_plan(scenario, n_jobs)
    supervisor = Supervisor(plan, _NO_FOLDER, store, engine, engine.clock, monotonic=engine.clock, state=state)
    engine.needs_clock_tick = lambda: supervisor.needs_clock_tick
    final_state = supervisor.run()
    engine.needs_clock_tick = lambda: False
    return final_state, engine


def _intervals(model: PoolModel, n_jobs: int) -> dict[str, float]:
    """Return the intervals of polling and progress reports.

    They grow with the run time of the jobs, with the number of agents (as in real pools) and with the number of jobs.
    """
    mean_job_s = (
        sum(site.n_slots * (site.compute_s.mean + site.warm_transfer_s.mean) for site in model.sites) / model.n_slots
    )
    interval_factor = max(1.0, min(_MAX_INTERVAL_FACTOR, n_jobs / _LARGE_RUN_JOBS))
    progress_interval_s = max(
        min(_MAX_PROGRESS_INTERVAL_S, mean_job_s / _MIN_PROGRESS_REPORTS),
        min(n_jobs, model.n_slots) / _MAX_REPORTS_PER_S,
        min_live_interval_s(n_jobs),
    )
    return {
        "poll_interval_s": min(_MAX_POLL_INTERVAL_S, mean_job_s / _MIN_POLLS_PER_JOB) * interval_factor,
        "progress_interval_s": progress_interval_s,
        "max_straggler_checks": _MAX_STRAGGLER_CHECKS / interval_factor,
    }


def _make_plan(scenario: Scenario, n_jobs: int) -> Plan:
    template = Job("", (), Resources(), scenario.limits, ())
    if scenario.behaviour.checkpoint_interval_s is not None:  # with a destination that every attempt reaches
        template = replace(template, checkpoint=CheckpointConfig("model"), output=Output(Location("s3://simulated")))
    jobs = tuple(replace(template, id=str(number)) for number in range(n_jobs))
    return Plan(RUN_ID, RUN_ID, "htcondor", jobs, recovery=scenario.recovery)


def _job_end(state: RunState, job_id: str) -> SessionEnd:
    end = classify_job(state.jobs[job_id])
    return SessionEnd(end.outcome, end.category, end.reason)
