"""The supervisor on real clusters after logout: as a background process, and as a job that requeues itself."""

from __future__ import annotations

import json
import sys
import time

import pytest

from packtrain.store import SqliteStore
from tests.slurm.conftest import TWO_CLUSTERS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.timeout(600),
]
on_newest = pytest.mark.parametrize("session_cluster", TWO_CLUSTERS[-1:], indirect=True)
WORKFLOW = """
name: detached
count: 2
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}}
slurm: {{partition: high}}
expect: [{{path: done.txt}}]
steps:
  - run: {{command: "until [ -e {folder}/go ]; do sleep 0.1; done; echo done > $PACKTRAIN_OUTPUT/done.txt"}}
"""
CONFIG = "slurm: {{queryInterval: 1s, supervisor: {{partition: {partition}, time: {time}}}}}\n"


class Login:
    """A user's folder and commands on a login node of the cluster."""

    def __init__(self, cluster, folder, partition="main", time="1h"):
        self._cluster, self.folder = cluster, folder
        for path in (folder, *folder.parents[:2]):
            path.chmod(0o755)
        (folder / "workflow.yaml").write_text(WORKFLOW.format(folder=folder))
        (folder / "config.yaml").write_text(CONFIG.format(partition=partition, time=time))
        self._env = {
            **cluster.env,
            "PACKTRAIN_STORE": str(folder / "store.db"), "PACKTRAIN_CONFIG": str(folder / "config.yaml"),
            "SLURM_MEM_PER_CPU": "77",  # as in a shell inside another job; inherited, it would be refused
        }  # fmt: skip

    def run(self, *arguments, check=True):
        return self._cluster.run(
            [sys.executable, "-m", "packtrain", *arguments, "--json"], check=check, cwd=self.folder, env=self._env
        )

    def start_run(self, detach):
        data = json.loads(self.run("run", "workflow.yaml", "--on", "slurm", detach).stdout)
        self.run_id = data["run"]
        return data

    def status(self):
        return json.loads(self.run("ps", self.run_id).stdout)

    def lease(self):
        return SqliteStore(self.folder / "store.db").get_lease(self.run_id)

    def wait_for_lease(self, epoch=1):
        """Wait for a supervisor with this lease epoch, whose attempts run."""
        self._cluster.wait_until(
            lambda: (lease := self.lease()) is not None and lease.epoch >= epoch and not lease.is_released,
            f"no supervisor has the lease epoch {epoch}", 120,
        )  # fmt: skip
        return self.lease()

    def wait_until_running(self):
        count = lambda: sum(bool(job["executions"]) for job in self.status()["jobs"])  # noqa: E731
        self._cluster.wait_until(lambda: count() == 2, "the jobs have not started", 120)

    def wait_for_success(self):
        self._cluster.wait_until(lambda: self.status()["status"] == "succeeded", "the run has not ended", 120)
        jobs = self.status()["jobs"]
        assert [(job["status"], len(job["executions"])) for job in jobs] == [("succeeded", 1)] * 2
        lines = self._cluster.run(["cat", self.folder / f".packtrain/runs/{self.run_id}/supervisor.log"]).stdout
        assert "Traceback" not in lines


@pytest.fixture
def login(cluster, tmp_path):
    return Login(cluster, tmp_path)


@pytest.mark.parametrize("session_cluster", TWO_CLUSTERS, indirect=True)
def test_job_is_killed_and_requeued(login, cluster):
    job = login.start_run("--detach=job")["supervisor_job"]
    login.wait_until_running()
    assert cluster.kill_processes("--in-job") == 1
    login.wait_for_lease(2)
    cluster.run(["scontrol", "requeue", job])
    login.wait_for_lease(3)
    cluster.run(["scancel", "--batch", "--signal=USR1", job])  # as Slurm does before the time limit
    login.wait_for_lease(4)
    (login.folder / "go").touch()
    login.wait_for_success()
    assert login.lease().epoch == 4
    cluster.wait_until(lambda: not cluster.run(["squeue", "-h", "-j", job], check=False).stdout, "the job continues")


@on_newest
def test_time_limit(cluster, tmp_path):
    """The limit is a minute, the shortest that Slurm knows."""
    login = Login(cluster, tmp_path, time="1m")
    login.start_run("--detach=job")
    first = login.wait_for_lease()
    second = login.wait_for_lease(2)
    assert (first.epoch, second.epoch) == (1, 2)
    (login.folder / "go").touch()
    login.wait_for_success()


@on_newest
def test_killed_job_is_resumed_elsewhere(login, cluster):
    """Another login node cannot see the process of the supervisor. It takes over when the lease has expired."""
    job = login.start_run("--detach=job")["supervisor_job"]
    login.wait_until_running()
    assert cluster.kill_processes(f"job{int(job):05}/slurm_script") == 1  # so that the job is not requeued
    cluster.kill_processes("--in-job")  # unless Slurm has already ended it with its script
    refused = login.run("resume", "--detach", check=False)
    assert refused.returncode == 3 and "already has a supervisor" in refused.stdout
    expires_at = login.lease().expires_at
    cluster.wait_until(lambda: time.time() > expires_at, "time passes")
    login.run("resume", "--detach")
    assert login.lease().epoch == 2
    (login.folder / "go").touch()
    login.wait_for_success()


@on_newest
def test_cancelled_job_hands_over(login, cluster):
    """The supervisor releases the lease, and the job does not come back."""
    job = login.start_run("--detach=job")["supervisor_job"]
    login.wait_until_running()
    cluster.run(["scancel", job])
    cluster.wait_until(lambda: login.lease().is_released, "the supervisor has not handed over")
    assert not login.status()["supervised"]
    login.run("resume", "--detach=job")
    (login.folder / "go").touch()
    login.wait_for_success()
    assert login.lease().epoch == 2


@on_newest
def test_process_outlives_the_session(login):
    """A second supervisor is refused while the first one is alive."""
    assert login.start_run("--detach")["pid"]
    login.wait_until_running()
    assert login.run("resume", "--detach=job", check=False).returncode == 3
    (login.folder / "go").touch()
    login.wait_for_success()
    assert login.lease().epoch == 1
