"""A user of a Slurm test cluster: packtrain runs and plain sbatch, and what the controller counted."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from harness.packtrain_user import PacktrainUser
from testbed.slurm.cluster import Cluster

SUBMIT_RPC = "REQUEST_SUBMIT_BATCH_JOB"
# What users' commands ask of the controller; the daemons' own messages and sdiag are left out.
USER_RPCS = re.compile(
    rf"{SUBMIT_RPC}|REQUEST_(JOB_INFO|JOB_USER_INFO|JOB_INFO_SINGLE|JOB_STATE|PARTITION_INFO|NODE_INFO|BUILD_INFO|KILL_JOB|"
    r"KILL_JOBS|CANCEL_JOB_STEP|UPDATE_JOB|JOB_REQUEUE|SUSPEND|RESERVATION_INFO|JOB_STEP_INFO|PING|LICENSE_INFO)"
)
_RPC_LINE = re.compile(r"^\s+(\w+)\s+\(\s*\d+\) count:(\d+)", re.MULTILINE)
_COMPLETION = re.compile(r"^JobId=(\d+) .*? Name=(\S+) .*?StartTime=(\S+) EndTime=(\S+)", re.MULTILINE)


class SlurmUser(PacktrainUser):
    """A user of a cluster."""

    def __init__(self, cluster: Cluster, folder: Path, **environment: str) -> None:
        self.cluster = cluster
        super().__init__("slurm", folder, self._run_on_cluster, **environment)

    def _run_on_cluster(self, arguments: Sequence[object], folder: Path, environment: Mapping[str, str]) -> str:
        argv = [sys.executable, "-m", "packtrain", *arguments]
        return self.cluster.run(argv, cwd=folder, env={**self.cluster.env, **environment}).stdout

    def sbatch(self, name: str, command: str, n_jobs: int, *options: object) -> None:
        """Submit an array of plain jobs."""
        argv = ["sbatch", f"--job-name={name}", f"--array=0-{n_jobs - 1}", "--output=/dev/null", *options]
        self.cluster.run([*argv, "--wrap", command], cwd=self.folder)

    def find_supervisors(self, run: str) -> Iterator[int]:
        """Yield the process ids of the supervisors of a run. They are outside of the cluster's namespace."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                argv = path.read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if "supervise" in argv and run in argv and "unshare" not in argv[0]:
                yield int(path.parent.name)


def count_rpcs(cluster: Cluster) -> dict[str, int]:
    """Return the number of messages that the controller received, by type, since its start."""
    text = cluster.run(["sdiag"]).stdout.partition("by message type")[2].partition("by user")[0]
    return {name: int(count) for name, count in _RPC_LINE.findall(text)}


def count_user_rpcs(cluster: Cluster) -> int:
    """Return the number of messages of users' commands since the controller's start."""
    return sum(count for name, count in count_rpcs(cluster).items() if USER_RPCS.fullmatch(name))


def read_completions(cluster: Cluster, name_prefix: str) -> list[tuple[float, float]]:
    """Return start and end of the ended jobs whose name begins so, from the controller's completion log."""
    path = cluster.folder / "log/completions"
    text = path.read_text(errors="replace") if path.exists() else ""
    return [
        (datetime.fromisoformat(start).timestamp(), datetime.fromisoformat(end).timestamp())
        for _, name, start, end in _COMPLETION.findall(text)
        if name.startswith(name_prefix) and "Unknown" not in (start, end)
    ]
