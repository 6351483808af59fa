"""Runs jobs that end in all the ways that Slurm's accounting distinguishes.

To record accounting for the tests of its reader: `TZ=UTC python -m tests.support.slurm_jobs VERSION FOLDER`.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from pathlib import Path

from packtrain.slurm.accounting.text_format import FIELDS
from testbed.slurm.cluster import Cluster

BURN = "python3 -c \"import time; data = bytearray({mib} << 20); exec('while time.process_time() < 3: pass')\""
RUN_UNTIL_TERM = "trap 'exit 60' TERM; while :; do sleep 0.1; done"
SETTINGS = {"JobAcctGatherParams": "OverMemoryKill", "JobAcctGatherFrequency": "task=1"}
STILL_THERE = ("running", "waiting")  # names of the jobs that have not ended
_UNFINISHED_STATES = {"RUNNING", "COMPLETING", "PENDING"}


class AccountedJobs:
    """Submits jobs to a cluster with accounting; `ids` has their numbers by name."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.ids: dict[str, str] = {}

    def submit(self, name: str, script: str, *options: object) -> None:
        argv = ["sbatch", "--parsable", "-J", name, "-o", "/dev/null", "-D", "/", "-c1", *options, "--wrap", script]
        self.ids[name] = self._cluster.run(argv).stdout.strip()

    def states(self, name: str) -> list[str]:
        """Return the state of each execution of a job, the newest last."""
        argv = ["sacct", "-n", "-P", "-X", "-D", "-j", self.ids[name], "-o", "State"]
        return [line.split(" ")[0] for line in self._cluster.run(argv).stdout.splitlines()]

    def wait_for(self, name: str, *expected: str) -> None:
        """Wait until the executions of a job have these states."""
        self._cluster.wait_until(lambda: self.states(name) == list(expected), f"job {name} is not {expected}")

    def run_all(self, *, with_time_limit: bool) -> None:
        """Run all kinds of jobs until they have ended.

        Args:
            with_time_limit: Also run a job into its time limit, which takes a minute or two.
        """
        cluster = self._cluster
        if with_time_limit:
            self.submit("timeout", RUN_UNTIL_TERM, "-t1", "-wn1")
        self.submit("lost node", RUN_UNTIL_TERM, "-wn2", "--requeue")
        self.wait_for("lost node", "RUNNING")
        cluster.lose_node("n2")
        self.submit("success", f"srun {BURN.format(mib=60)}", "-wn1", "--mem=200M")
        self.submit("failure", "exit 7", "-wn1")
        self.submit("gpus", "sleep 2", "-wn1", "--gpus-per-node=a100:2", "-c4")
        self.submit("array", '[ "$SLURM_ARRAY_TASK_ID" != 2 ]', "-wn1", "--array=0-3")
        self.submit("memory", BURN.format(mib=300), "-wn1", "--mem=100M")
        self.submit("cancelled", RUN_UNTIL_TERM, "-wn1")
        self.submit("requeued", RUN_UNTIL_TERM, "-wn1")
        self.submit("preempted and requeued", RUN_UNTIL_TERM, "-plow", "-wn3", "-c4")
        self.submit("preempted", RUN_UNTIL_TERM, "-ppreemptible", "-wn3", "-c4")
        for name in ("cancelled", "requeued", "preempted and requeued", "preempted"):
            self.wait_for(name, "RUNNING")
        cluster.run(["scancel", self.ids["cancelled"]])
        cluster.run(["scontrol", "requeue", self.ids["requeued"]])
        self.submit("high priority", "sleep 1", "-phigh", "-wn3", "-c8")
        self.wait_for("preempted", "PREEMPTED")
        self.wait_for("preempted and requeued", "PREEMPTED", "RUNNING")
        self.wait_for("requeued", "REQUEUED", "RUNNING")
        self.wait_for("lost node", "NODE_FAIL", "PENDING")
        cluster.start("n2")
        self.wait_for("lost node", "NODE_FAIL", "RUNNING")
        for name in ("preempted and requeued", "requeued", "lost node"):
            cluster.run(["scancel", "-s", "TERM", "-b", self.ids[name]])
        if with_time_limit:
            cluster.wait_until(lambda: self.states("timeout") == ["TIMEOUT"], "the time limit had no effect", 180)
        self.submit("running", RUN_UNTIL_TERM, "-wn1")
        self.submit("waiting", "true", "-wn1", "-c16")
        self.wait_for("running", "RUNNING")
        ended = [name for name in self.ids if name not in STILL_THERE]
        cluster.wait_until(
            lambda: not any(_UNFINISHED_STATES.intersection(self.states(name)) for name in ended), "a job has not ended"
        )


def main() -> None:
    version, output = sys.argv[1], Path(sys.argv[2])
    with (
        tempfile.TemporaryDirectory(prefix="slurm-") as folder,
        Cluster(Path(folder), version, accounting=True, settings=SETTINGS) as cluster,
    ):
        AccountedJobs(cluster).run_all(with_time_limit=True)
        output.mkdir(parents=True, exist_ok=True)
        text = cluster.run(["sacct", "-P", "-D", "-o", ",".join(FIELDS)]).stdout
        (output / f"{version}.txt").write_text(text)
        document = cluster.run(["sacct", "--json", "-D"]).stdout
        (output / f"{version}.json.gz").write_bytes(gzip.compress(document.encode(), mtime=0))


if __name__ == "__main__":
    main()
