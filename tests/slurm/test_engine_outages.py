"""The Slurm engine while daemons are down and nodes are lost. Each attempt ends once, with success or a clear verdict.

All tests share a cluster of their own, because they break it: Slurm forgets jobs after seconds there, kills jobs that
use too much memory, and has a prolog that fails when a test wants it to.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess

import pytest

from packtrain.engines.updates import ExecutionInterrupted, ExecutionStarted, Gone, Held, Queued, Released
from packtrain.events import kinds
from packtrain.plan import Resources
from testbed.slurm import install
from testbed.slurm.cluster import Cluster
from tests.support.pool_updates import all_gone, poll_until
from tests.support.slurm_engine import SlurmEngineHarness

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("slurm"), pytest.mark.timeout(600)]
SMALL = Resources(mem_per_cpu_mb=100)
PROLOG = "#!/bin/sh\n[ ! -e {folder}/fail-prolog ]\n"


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    prolog = folder / "prolog.sh"
    prolog.write_text(PROLOG.format(folder=folder))
    prolog.chmod(0o755)
    settings = {
        "MinJobAge": "5",
        "MessageTimeout": "5",
        "JobAcctGatherParams": "OverMemoryKill",
        "JobAcctGatherFrequency": "task=1",
        "Prolog": str(prolog),
    }
    spool = folder / "spool/n3"
    spool.mkdir(parents=True)
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", spool], capture_output=True)
    with Cluster(folder, install.NEWEST, accounting=True, settings=settings) as cluster:
        cluster.has_small_spool = mount.returncode == 0
        yield cluster
    if mount.returncode == 0:
        subprocess.run(["umount", "--lazy", spool], check=True)


@pytest.fixture
def cluster(own_cluster):
    own_cluster.wait_until_idle()
    yield own_cluster
    own_cluster.cancel_all()


@pytest.fixture
def pool(cluster, tmp_path):
    harness = SlurmEngineHarness(tmp_path, cluster, SMALL, has_accounting=True, max_array_tasks=1000)
    yield harness
    harness.kill_agents()


@pytest.fixture
def engine(pool):
    return pool.make_engine()


def start_agent(pool, engine, behavior="hang"):
    """Submit an attempt, wait until its agent has started, and return the request and the name of the task."""
    request = pool.make_request("0-1", behavior)
    native_ids = engine.submit([request])
    poll_until(engine, lambda updates: any(isinstance(update, ExecutionStarted) for update in updates))
    poll_until(engine, lambda _: pool.read_events(request))
    return request, native_ids["0-1"]


def end_agent(pool, engine):
    engine.cancel(["0-1"])
    return poll_until(engine, all_gone("0-1"))


def forget_jobs(cluster):
    cluster.wait_until(lambda: not cluster.run(["squeue", "-h", "-t", "all"]).stdout, "Slurm still knows the job")


def test_slurmd_killed(pool, engine, cluster):
    """The job goes on without its node's daemon, which then finds it again."""
    request, native_id = start_agent(pool, engine)
    node = cluster.run(["squeue", "-h", "-r", "-j", native_id, "-o", "%N"]).stdout.strip()
    cluster.kill(node)
    cluster.start(node)
    updates = end_agent(pool, engine)
    assert not any(isinstance(update, ExecutionInterrupted) for update in updates)
    assert len(pool.read_events(request)) == 1


@pytest.mark.parametrize("loss", ["slurmstepd", "slurmstepd and slurmd"])
def test_lost_job(pool, engine, cluster, loss):
    """The node loses the job: Slurm ends it, or starts it again when it has noticed."""
    _, native_id = start_agent(pool, engine)
    node = cluster.run(["squeue", "-h", "-r", "-j", native_id, "-o", "%N"]).stdout.strip()
    if loss == "slurmstepd":
        assert cluster.kill_job_steps(node) == 1
    else:
        cluster.lose_node(node)
    has_ended = lambda update: isinstance(update, (ExecutionInterrupted, Gone))  # noqa: E731
    try:
        updates = poll_until(engine, lambda updates: any(map(has_ended, updates)))
    finally:
        if loss != "slurmstepd":
            cluster.start(node)
    (end,) = filter(has_ended, updates)
    assert end.failure_kind == "evicted", end


def test_drained_node(pool, engine, cluster):
    """A drained node finishes its jobs; another node gets the next ones."""
    _, native_id = start_agent(pool, engine)
    node = cluster.run(["squeue", "-h", "-r", "-j", native_id, "-o", "%N"]).stdout.strip()
    cluster.run(["scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test"])
    try:
        second = pool.make_request("1-1", "succeed")
        engine.submit([second])
        updates = poll_until(engine, all_gone("1-1"))
        (started,) = [u for u in updates if isinstance(u, ExecutionStarted)]
        assert started.host != node
        end_agent(pool, engine)
    finally:
        cluster.run(["scontrol", "update", f"NodeName={node}", "State=RESUME"])


def test_node_down(pool, engine, cluster):
    """An administrator sets the node down; Slurm restarts the job elsewhere or on it."""
    _, native_id = start_agent(pool, engine)
    node = cluster.run(["squeue", "-h", "-r", "-j", native_id, "-o", "%N"]).stdout.strip()
    cluster.run(["scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test"])
    try:
        updates = poll_until(
            engine, lambda updates: any(isinstance(u, ExecutionStarted) and u.execution == 2 for u in updates)
        )
    finally:
        cluster.run(["scontrol", "update", f"NodeName={node}", "State=RESUME"], check=False)  # it may be up again
    assert any(isinstance(update, ExecutionInterrupted) for update in updates)
    end_agent(pool, engine)


def test_requeued_and_held(pool, engine, cluster):
    _, native_id = start_agent(pool, engine)
    cluster.run(["scontrol", "requeuehold", native_id])
    updates = poll_until(engine, lambda updates: any(isinstance(update, Held) for update in updates))
    (held,) = [update for update in updates if isinstance(update, Held)]
    assert held.action == "wait" and "requeued and held" in held.detail
    engine.release(["0-1"])
    updates = poll_until(
        engine, lambda updates: any(isinstance(u, ExecutionStarted) and u.execution == 2 for u in updates)
    )
    assert any(isinstance(update, Released) for update in updates)
    end_agent(pool, engine)


def test_failed_launch(pool, engine, cluster):
    """Slurm holds a job that a node could not start, because the site's prolog failed; the engine can release it."""
    marker = cluster.folder / "fail-prolog"
    marker.touch()
    try:
        request = pool.make_request("0-1", "succeed")
        engine.submit([request])
        updates = poll_until(engine, lambda updates: any(isinstance(update, Held) for update in updates))
    finally:
        marker.unlink()
        cluster.run(["scontrol", "update", "NodeName=n[1-3]", "State=RESUME"], check=False)
    (held,) = [update for update in updates if isinstance(update, Held)]
    assert (held.action, held.failure_kind) == ("release", "evicted")
    engine.release(["0-1"])
    assert poll_until(engine, all_gone("0-1"))[-1].exit_code == 0
    assert len(pool.read_events(request)) == 1


def test_full_spool(cluster, tmp_path):
    if not cluster.has_small_spool:
        pytest.skip("mounting is not permitted")
    pool = SlurmEngineHarness(tmp_path, cluster, SMALL, {"nodelist": "n3"})
    engine, request = pool.make_engine(), pool.make_request("0-1", "succeed")
    filler = cluster.folder / "spool/n3/filler"
    with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))
    try:
        engine.submit([request])
        updates = poll_until(engine, lambda updates: any(isinstance(update, Held) for update in updates))
    finally:
        filler.unlink()
        cluster.run(["scontrol", "update", "NodeName=n3", "State=RESUME"], check=False)
    (held,) = [update for update in updates if isinstance(update, Held)]
    assert (held.action, held.failure_kind) == ("release", "evicted")
    engine.release(["0-1"])
    assert poll_until(engine, all_gone("0-1"))[-1].exit_code == 0
    assert len(pool.read_events(request)) == 1
    pool.kill_agents()


def test_time_limit(pool, engine, cluster):
    """An agent that does not leave in time, for example because it hangs."""
    _, native_id = start_agent(pool, engine, "deaf")
    cluster.run(["scontrol", "update", f"JobId={native_id}", "EndTime=now"])
    gone = poll_until(engine, all_gone("0-1"))[-1]
    assert gone.failure_kind == "pool_time_limit" and "time limit" in gone.detail


def test_killed_for_its_memory(pool, engine):
    """Without control groups Slurm kills the whole job (OverMemoryKill) and reports only that."""
    engine.submit([pool.make_request("0-1", "allocate")])
    gone = poll_until(engine, all_gone("0-1"))[-1]
    assert gone.exit_code == -signal.SIGKILL and "SIGKILL" in gone.detail


class TestForgottenJobs:
    def test_accounting_has_them(self, pool, engine, cluster):
        """Slurm's controller forgets how a killed agent ended, and the agent could not report it."""
        _, native_id = start_agent(pool, engine)
        cluster.run(["scancel", "--batch", "--signal=KILL", native_id])
        forget_jobs(cluster)
        gone = poll_until(engine, all_gone("0-1"))[-1]
        assert gone.exit_code == -signal.SIGKILL and "SIGKILL" in gone.detail

    def test_accounting_is_down(self, pool, engine, cluster):
        """The journal says how the attempt ended."""
        cluster.stop("slurmdbd")
        try:
            request = pool.make_request("0-1", "succeed")
            engine.submit([request])
            poll_until(pool.make_engine(), lambda _: pool.read_events(request, kinds.AGENT_ENDED))
            forget_jobs(cluster)
            gone = poll_until(engine, all_gone("0-1"))[-1]
        finally:
            cluster.start("slurmdbd")
        assert gone.exit_code == 0 and len(pool.read_events(request)) == 1


class TestController:
    def test_answer_of_sbatch_is_lost(self, pool, engine, cluster):
        """sbatch reports `Socket timed out`, but the controller accepts the job as soon as it runs again."""
        cluster.kill("slurmctld", signal.SIGSTOP)
        try:
            request = pool.make_request("0-1", "succeed")
            assert engine.submit([request]) == {}
            (queued,) = [update for update in engine.poll() if isinstance(update, Queued)]
        finally:
            cluster.kill("slurmctld", signal.SIGCONT)
        assert queued.reason.startswith("waits for Slurm: ")
        assert poll_until(engine, all_gone("0-1"))[-1].exit_code == 0
        assert len(pool.read_events(request)) == 1

    def test_supervisor_dies_before_sbatch_answers(self, pool, engine, cluster):
        """The next one finds the stored submission, asks Slurm for it, and submits it if Slurm does not have it."""
        request = pool.make_request("0-1", "succeed")
        cluster.stop("slurmctld")
        try:
            engine.submit([request])
            engine.close()
        finally:
            cluster.start("slurmctld")
        later_engine = pool.make_engine()
        assert isinstance(later_engine.recover([request])[-1], Queued)
        assert poll_until(later_engine, all_gone("0-1"))[-1].exit_code == 0
        assert len(pool.read_events(request)) == 1

    def test_munged_is_down(self, pool, engine, cluster):
        cluster.stop("munged")
        try:
            request = pool.make_request("0-1", "succeed")
            assert engine.submit([request]) == {}
        finally:
            cluster.start("munged")
        assert poll_until(engine, all_gone("0-1"))[-1].exit_code == 0
        assert len(pool.read_events(request)) == 1

    @pytest.mark.parametrize("stage", ["pending", "running", "ended"])
    def test_killed(self, pool, engine, cluster, stage):
        """The controller loses the last seconds, so an attempt may have two executions, but it ends once."""
        request = pool.make_request("0-1", "hang" if stage == "running" else "succeed")
        engine.submit([request])
        if stage != "pending":
            kind = kinds.AGENT_STARTED if stage == "running" else kinds.AGENT_ENDED
            poll_until(engine, lambda _: pool.read_events(request, kind))
        cluster.restart_controller()
        if stage == "running":
            engine.cancel(["0-1"])
        (gone,) = [u for u in poll_until(engine, all_gone("0-1")) if isinstance(u, Gone)]
        assert stage != "ended" or gone.exit_code == 0
