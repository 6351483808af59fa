"""The composition root: connects store, engines and supervisor, and finds runs and their state.

`submission` and `runs` build on it. Modules that most commands do not need are imported inside functions.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.engines.api import Capabilities, Engine, SubmitRequest
from packtrain.engines.htcondor import CAPABILITIES as HTCONDOR
from packtrain.engines.htcondor import HtcondorEngine, capabilities_for
from packtrain.engines.htcondor.condor_client import CondorClient
from packtrain.engines.local import LocalEngine, capabilities
from packtrain.engines.slurm import CAPABILITIES as SLURM
from packtrain.engines.slurm import SlurmEngine
from packtrain.engines.slurm import capabilities_for as slurm_capabilities_for
from packtrain.errors import NotFoundError, UnavailableError, UsageError
from packtrain.plan import Plan, RunFolder, read_plan
from packtrain.state import RunState
from packtrain.state.site_history import SiteHistory
from packtrain.store import Lease, RunInfo, SqliteStore, store_path
from packtrain.store.location import file_system_type, is_network_file_system
from packtrain.supervise import Collector, Supervisor
from packtrain.supervise.lease import is_holder_alive
from packtrain.views.event_feed import EventFeed

if TYPE_CHECKING:
    from packtrain.engines.setup_check import SetupCheck

ENGINE_NAMES = ("local", "htcondor", "slurm")


def open_store() -> SqliteStore:
    """Open the user's store of runs."""
    return SqliteStore(store_path())


def engine_capabilities(name: str, plan: Plan | None = None) -> Capabilities:
    """Return the capabilities of an engine, for a plan if given. Raises UsageError for an unknown one."""
    if name not in ENGINE_NAMES:
        raise UsageError(f"there is no engine {name!r}; available are {', '.join(ENGINE_NAMES)}")
    if name == "htcondor":
        return capabilities_for(plan) if plan else HTCONDOR
    if name == "slurm":
        return slurm_capabilities_for(plan) if plan else SLURM
    return capabilities()


def make_engine(run_info: RunInfo, plan: Plan) -> Engine:
    """Return the engine that a run uses."""
    folder = RunFolder(run_info.folder)
    if run_info.engine == "htcondor":
        return HtcondorEngine(plan, folder)
    return SlurmEngine(plan, folder) if run_info.engine == "slurm" else LocalEngine(folder)


def make_supervisor(run_info: RunInfo, store: SqliteStore, lease: Lease | None = None) -> Supervisor:
    """Return the supervisor of a run. Acquire `lease` before if the plan is large, since reading it takes a while."""
    from packtrain.publication.publisher import Publisher

    folder = RunFolder(run_info.folder)
    plan = read_plan(folder.plan)
    engine = make_engine(run_info, plan)
    publisher = Publisher(plan, folder, engine.capabilities.has_shared_folder)
    return Supervisor(plan, folder, store, engine, lease=lease, publisher=publisher)


def load_site_history(store: SqliteStore, engine: str = "") -> SiteHistory:
    """Return the history of sites, nodes and caches in earlier runs."""
    return SiteHistory.from_observations(store.observations(), time.time(), engine)


def check_access_point() -> list[SetupCheck]:
    """Check the HTCondor pool of this access point."""
    from packtrain.engines.htcondor import access_point_checks

    return list(access_point_checks.check_access_point(CondorClient(), Path.cwd()))


def check_slurm_cluster(*, with_node: bool = False) -> list[SetupCheck]:
    """Check the Slurm cluster of this machine, and with a short job also one of its nodes."""
    from packtrain.engines.slurm import cluster_checks
    from packtrain.engines.slurm.slurm_client import SlurmClient

    has_network_folder = is_network_file_system(file_system_type(Path.cwd()))
    return list(
        cluster_checks.check_cluster(
            SlurmClient(), Path.cwd(), has_network_folder=has_network_folder, with_node=with_node
        )
    )


def read_slurm_accounting(since: str, until: str = "", user: str = "") -> str:
    """Return what sacct prints about the jobs of a span of time. Raises UsageError or UnavailableError."""
    from packtrain.engines.slurm.slurm_client import SlurmClient

    return SlurmClient().read_accounting(since, until, user)


def build_plugin(target: Path) -> None:
    """Write HTCondor's transfer plugin as one file. Raises OSError."""
    from packtrain.engines import bundle

    bundle.build_plugin(target)


def find_run(store: SqliteStore, id_prefix: str) -> RunInfo:
    """Find a run by its id or the beginning of it. Without one, return the newest run, preferably of this folder."""
    runs = store.list_runs()
    if not runs:
        raise NotFoundError("there are no runs yet; start one with `packtrain run FILE`")
    if not id_prefix:
        here = [row for row in runs if Path.cwd() in (row.folder, *row.folder.parents)]
        return (here or runs)[-1]
    matches = [row for row in runs if row.run == id_prefix] or [row for row in runs if row.run.startswith(id_prefix)]
    if not matches:
        raise NotFoundError(f"there is no run {id_prefix!r}; `packtrain ps` lists them")
    if len({row.name for row in matches}) > 1:
        raise UsageError(f"{id_prefix!r} matches {', '.join(row.run for row in matches[-5:])}; give more characters")
    return matches[-1]


def find_job(store: SqliteStore, target: str) -> tuple[RunInfo, str | None]:
    """Find RUN or RUN.JOB. The job is None if the target is a run."""
    run, dot, job = target.rpartition(".")
    if dot and any(row.run.startswith(run) for row in store.list_runs()):
        row = find_run(store, run)
        if job not in load_state(store, row.run).jobs:
            raise NotFoundError(f"the run {row.run} has no job {job!r}; `packtrain ps {row.run}` lists them")
        return row, job
    return find_run(store, target), None


def load_state(store: SqliteStore, run: str) -> RunState:
    """Build the state of a run from its stored events and progress."""
    feed = EventFeed(store, run)
    feed.read()
    return feed.state


def live_supervisor_lease(store: SqliteStore, run: str) -> Lease | None:
    """Return the lease of the run if its supervisor is alive."""
    lease = store.get_lease(run)
    is_alive = lease is not None and not lease.is_released and lease.expires_at > time.time() and is_holder_alive(lease)
    return lease if is_alive else None


def refresh_state(store: SqliteStore, run_info: RunInfo) -> RunState:
    """Return the state of a run; without a live supervisor, collect the events of its agents first."""
    feed = EventFeed(store, run_info.run)
    feed.read()
    state = feed.state
    if state.is_finished or live_supervisor_lease(store, run_info.run) or not RunFolder(run_info.folder).plan.exists():
        return state
    folder = RunFolder(run_info.folder)
    plan = read_plan(folder.plan)
    jobs = {job.id: job for job in plan.jobs}
    live = [
        SubmitRequest(execution.attempt_id, jobs[job.id])
        for job in state.jobs.values()
        for execution in job.live_executions
    ]
    engine = make_engine(run_info, plan)
    with contextlib.suppress(UnavailableError, UsageError):  # the pool does not respond; show the stored state
        Collector(store, run_info.run, folder, engine.capabilities.has_shared_folder).collect(
            state, engine.recover(live)
        )
    feed.read()
    return state
