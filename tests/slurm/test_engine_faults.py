"""The Slurm engine when things go wrong: requeueing, preemption, lost nodes and controllers, rejected jobs."""

from __future__ import annotations

import pytest

from packtrain.engines.updates import ExecutionInterrupted, ExecutionStarted, Gone, Held, Queued, Released
from packtrain.events import kinds
from packtrain.plan import Resources
from testbed.slurm.cluster import Cluster
from tests.slurm.conftest import TWO_CLUSTERS
from tests.support.pool_updates import all_gone, poll_until
from tests.support.slurm_engine import SlurmEngineHarness

pytestmark = [
    pytest.mark.parametrize("session_cluster", TWO_CLUSTERS, indirect=True),
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.timeout(600),
]
SMALL = Resources(mem_per_cpu_mb=100)


@pytest.fixture
def make_pool(cluster, tmp_path):
    pools = []

    def make(**options):
        pools.append(SlurmEngineHarness(tmp_path, cluster, **{"resources": SMALL, **options}))
        return pools[-1]

    yield make
    for pool in pools:
        pool.kill_agents()


def started(execution):
    return lambda updates: any(isinstance(u, ExecutionStarted) and u.execution == execution for u in updates)


def has_type(*wanted):
    return lambda updates: any(isinstance(update, wanted) for update in updates)


def test_requeue_is_another_execution(make_pool, cluster):
    pool = make_pool()
    engine, request = pool.make_engine(), pool.make_request("0-1", "hang")
    native_id = engine.submit([request])["0-1"]
    poll_until(engine, started(1))
    poll_until(engine, lambda _: pool.read_events(request))
    cluster.run(["scontrol", "requeue", native_id])
    updates = poll_until(engine, started(2))
    assert [u.execution for u in updates if isinstance(u, ExecutionInterrupted)] == [1]
    poll_until(engine, lambda _: len(pool.read_events(request)) == 2)
    engine.cancel(["0-1"])
    assert isinstance(poll_until(engine, all_gone("0-1"))[-1], Gone)
    history = pool.make_engine().recover([request])
    assert [type(u) for u in history if not isinstance(u, Queued)] == [
        ExecutionStarted, ExecutionInterrupted, ExecutionStarted, Gone,
    ]  # fmt: skip
    assert len({u.seq for u in history if u.seq}) == 3


def test_preempted_without_requeue(make_pool, cluster):
    pool = make_pool(
        resources=Resources(cpus_per_task=8, mem_per_cpu_mb=100), options={"partition": "preemptible", "nodelist": "n3"}
    )
    engine, request = pool.make_engine(), pool.make_request("0-1", "hang")
    engine.submit([request])
    poll_until(engine, started(1))
    cluster.run(["sbatch", "-p", "high", "-w", "n3", "-c", "8", "-o", "/dev/null", "--wrap", "sleep 1"])
    gone = poll_until(engine, all_gone("0-1"))[-1]
    assert gone.failure_kind == "evicted"


def test_cancelled_by_the_administrator(make_pool, cluster):
    pool = make_pool()
    engine, request = pool.make_engine(), pool.make_request("0-1", "hang")
    native_id = engine.submit([request])["0-1"]
    poll_until(engine, started(1))
    cluster.run(["scancel", native_id])
    gone = poll_until(engine, all_gone("0-1"))[-1]
    assert gone.failure_kind == "terminated" and "cancelled in Slurm" in gone.detail


def test_held_and_released(make_pool, cluster):
    pool = make_pool(options={"hold": ""})
    engine, request = pool.make_engine(), pool.make_request("0-1", "succeed")
    engine.submit([request])
    (held,) = [u for u in poll_until(engine, has_type(Held)) if isinstance(u, Held)]
    assert (held.action, held.failure_kind) == ("wait", "held") and "scontrol release" in held.detail
    engine.release(["0-1"])
    updates = poll_until(engine, all_gone("0-1"))
    assert any(isinstance(u, Released) for u in updates) and updates[-1].exit_code == 0


def test_rejected_options(make_pool):
    pool = make_pool(options={"partition": "no-such-partition"})
    engine, request = pool.make_engine(), pool.make_request("0-1", "succeed")
    engine.submit([request])
    gone = poll_until(engine, all_gone("0-1"))[-1]
    assert gone.failure_kind == "submit_rejected" and "partition" in gone.detail
    assert isinstance(pool.make_engine().recover([request])[-1], Gone)


def test_pending_reason(make_pool):
    pool = make_pool(resources=Resources(cpus_per_task=16, mem_per_cpu_mb=100))
    engine = pool.make_engine()
    requests = [pool.make_request(f"{n}-1", "hang") for n in range(2)]
    engine.submit(requests)
    waits = lambda u: isinstance(u, Queued) and u.attempt_id == "1-1" and "waits for free resources" in (u.reason or "")  # noqa: E731
    poll_until(engine, lambda updates: any(map(waits, updates)))
    engine.cancel(["0-1", "1-1"])
    poll_until(engine, all_gone("0-1", "1-1"))


class TestController:
    """A controller of its own, because it is killed."""

    @pytest.fixture
    def cluster(self, session_cluster, tmp_path):
        version = ".".join(f"{part:02d}" for part in session_cluster.version)
        settings = {"MinJobAge": "2", "MessageTimeout": "5"}
        with Cluster(tmp_path / "cluster", version, accounting=session_cluster.accounting, settings=settings) as own:
            yield own

    def test_killed_right_after_a_submission(self, make_pool, cluster):
        """The job may be lost; then the attempt is gone, and another one can be submitted. It never runs twice."""
        pool = make_pool()
        engine, request = pool.make_engine(), pool.make_request("0-1", "succeed")
        engine.submit([request])
        cluster.restart_controller()
        gone = poll_until(engine, all_gone("0-1"))[-1]
        ends = pool.read_events(request, kinds.AGENT_ENDED)
        assert len(pool.read_events(request)) <= 1
        assert (gone.exit_code == 0) == bool(ends)

    def test_down_during_a_submission(self, make_pool, cluster):
        pool = make_pool()
        engine, request = pool.make_engine(), pool.make_request("0-1", "succeed")
        cluster.stop("slurmctld")
        assert engine.submit([request]) == {}
        (queued,) = [u for u in engine.poll() if isinstance(u, Queued)]
        assert queued.reason.startswith("waits for Slurm: ")
        cluster.start("slurmctld")
        assert poll_until(engine, all_gone("0-1"))[-1].exit_code == 0
        assert len(pool.read_events(request)) == 1

    def test_forgotten_before_the_next_poll(self, make_pool, cluster):
        """Slurm forgets ended jobs after MinJobAge; then the agent's journal says how the attempt ended."""
        pool = make_pool()
        engine, request = pool.make_engine(), pool.make_request("0-1", "succeed")
        engine.submit([request])
        poll_until(pool.make_engine(), lambda _: pool.read_events(request, kinds.AGENT_ENDED))
        cluster.wait_until(lambda: not cluster.run(["squeue", "-h", "-t", "all"]).stdout, "Slurm still knows the job")
        assert poll_until(engine, all_gone("0-1"))[-1].exit_code == 0


class TestSubmitLimit:
    """A cluster of its own, whose accounting allows three jobs at a time."""

    @pytest.fixture
    def cluster(self, session_cluster, tmp_path):
        version = ".".join(f"{part:02d}" for part in session_cluster.version)
        settings = {"AccountingStorageEnforce": "limits", "MinJobAge": "5"}
        with Cluster(tmp_path / "cluster", version, accounting=True, settings=settings) as own:
            for command in (
                ["add", "account", "lab"],
                ["add", "user", own.user, "Account=lab"],
                ["modify", "user", own.user, "set", "MaxSubmitJobs=3"],
            ):
                own.run(["sacctmgr", "--immediate", *command])
            yield own

    def test_attempts_wait_for_room(self, make_pool, cluster):
        pool = make_pool()
        engine, requests = pool.make_engine(), [pool.make_request(f"{n}-1", "succeed") for n in range(7)]
        assert engine.submit(requests) == {}, "Slurm refuses an array of seven"
        updates = poll_until(engine, all_gone(*(request.attempt_id for request in requests)))
        assert [u.exit_code for u in updates if isinstance(u, Gone)] == [0] * 7
        assert any("SubmitJobLimit" in (u.reason or "") for u in updates if isinstance(u, Queued))
        assert all(len(pool.read_events(request)) == 1 for request in requests)
