"""The published week on a Slurm cluster: preemption and time limits in place of evictions and holds.

One node per job, which computes as fast as the published job did. Where the published job was evicted, or stalled or
was held in a transfer, a job of a higher partition takes the node for an hour, and Slurm requeues the preempted one.
The partition has the published limit of 20 hours. The dataset comes from one server that has no faults.
"""

from __future__ import annotations

import contextlib
import math
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from harness.measure import print_progress
from harness.slurm_user import SlurmUser
from harness.week import arm_metrics, paced_trainer
from harness.week.arms import MAX_ATTEMPTS, MODEL_FILENAME, N_CHECKPOINTS, S3_ENVIRONMENT, scaled_recovery
from harness.week.fault_schedule import SETUP_FRACTION, ReplayNode, ReplayWeek
from packtrain import services
from packtrain.report.history import JobHistory
from packtrain.report.readers.files import read_accounting_history
from packtrain.runs import reports
from packtrain.slurm.accounting.text_format import accounting_argv
from packtrain.store import SqliteStore
from testbed.http_server import HttpServer
from testbed.s3 import BUCKET, REGION, S3Server
from testbed.slurm.cluster import Cluster
from testbed.slurm.config import Node

ARCHIVE, WEIGHTS = "imagenet.tar", "resnet50.pth"
_PARTITION, _PREEMPTING_PARTITION = "low", "high"
_POLL_INTERVAL_S = 2.0
_MAX_HOURS = 60.0
_TRAIN = "exec {python} {train} --node-seconds {nodes} --weights {url}/{weights} --setup-share {setup}"
_WORKFLOW = """name: week
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 1GB, gpus: 0}}
count: {jobs}
slurm: {{partition: {partition}, time: {minutes}}}
input: {{http: {{url: "{url}/{archive}"}}, nested: true}}
output:
  s3: {{region: {region}, bucketUrl: "s3://{bucket}", path: "/week/{{job}}", endpointUrl: "{endpoint}",
       accessKeyId: "${{env:REPLAY_S3_KEY}}", secretAccessKey: "${{env:REPLAY_S3_SECRET}}"}}
checkpoint: {{path: checkpoint.pt, minInterval: {every:.0f}s}}
expect: [{model}]
limits: {{grace: 5s, maxAttempts: {attempts}}}
steps:
  - name: train
    run: {{command: "{train} --data $PACKTRAIN_INPUT --save {steps}"}}
"""
_PLAIN = """mkdir -p {out}/$SLURM_ARRAY_TASK_ID $TMPDIR/week-$SLURM_JOB_ID && cd $TMPDIR/week-$SLURM_JOB_ID || exit 1
{python} -c "import urllib.request; urllib.request.urlretrieve('{url}/{archive}', '{archive}')" && tar -xf {archive}
for class in *.tar; do mkdir ${{class%.tar}}; tar -xf $class -C ${{class%.tar}} 2>/dev/null; rm $class; done
cd {out}/$SLURM_ARRAY_TASK_ID; {train} --data $TMPDIR/week-$SLURM_JOB_ID
"""


def preemptions_of(week: ReplayWeek) -> Iterator[tuple[float, ReplayNode]]:
    """Yield time and node of each preemption: one for each eviction, and one for a stall or a hold of a transfer.

    All nodes are there from the beginning, so times count from the start of the node's job.
    """
    rng = random.Random(len(week.nodes))
    for node in week.nodes:
        yield from ((start - node.opens_at, node) for start, _ in node.evicted_periods)
        if node.cache_stalls_until[0] or any(start <= node.opens_at < end for start, end in week.director_outages):
            yield rng.uniform(0.2, 0.95) * node.compute_s, node


class SlurmReplay:
    """The cluster, its servers and the schedule. `run_arm` runs one arm and returns its history."""

    def __init__(self, folder: Path, week: ReplayWeek, archive: bytes) -> None:
        self._folder, self._week = folder, week
        nodes = [Node(_node_name(node), 1, 4000, 0, "", "week") for node in week.nodes]
        self._cluster = Cluster(folder / "cluster", nodes=nodes, accounting=True)
        self._served, self._seconds = folder / "served", folder / "node-seconds"
        for path in (self._served, self._seconds):
            path.mkdir(parents=True)
        (self._served / ARCHIVE).write_bytes(archive)
        (self._served / WEIGHTS).write_bytes(b"weights" * 10_000)
        for node in week.nodes:
            (self._seconds / _node_name(node)).write_text(f"{node.compute_s:.3f}")
        shutil.copy(paced_trainer.__file__, folder / "train.py")

    @contextlib.contextmanager
    def start(self) -> Iterator[SlurmReplay]:
        with self._cluster, HttpServer(self._served) as self._server:
            yield self

    def run_arm(self, name: str, folder: Path, s3: S3Server) -> JobHistory:
        # Like the waits of `recovery`, the interval of queries is scaled.
        (self._folder / "config.yaml").write_text(
            f"slurm: {{queryInterval: {max(1.0, self._week.hour_s / 30):.0f}s}}\n"
        )
        user = SlurmUser(self._cluster, folder, PACKTRAIN_CONFIG=str(self._folder / "config.yaml"), **S3_ENVIRONMENT)
        try:
            return ARMS[name](self, user, s3)
        finally:
            self._cluster.cancel_all()

    @contextlib.contextmanager
    def preempt_jobs(self) -> Iterator[None]:
        """Preempt jobs as the schedule says."""
        finished, started_at = threading.Event(), time.time()
        preemptions = sorted(preemptions_of(self._week), key=lambda preemption: preemption[0])

        def preempt() -> None:
            for start, node in preemptions:
                if finished.wait(max(0.0, started_at + start - time.time())):
                    return
                print_progress(f"  {start / self._week.hour_s:.1f} h: preempting the job on {_node_name(node)}")
                options = ("-p", _PREEMPTING_PARTITION, "-w", _node_name(node), "-o", "/dev/null")
                self._cluster.run(["sbatch", *options, "--wrap", f"sleep {self._week.hour_s:.0f}"])

        thread = threading.Thread(target=preempt, daemon=True)
        thread.start()
        try:
            yield
        finally:
            finished.set()
            thread.join()

    def run_packtrain(self, user: SlurmUser, s3: S3Server) -> JobHistory:
        hour_s = self._week.hour_s
        text = _WORKFLOW.format(
            jobs=len(self._week.nodes),
            partition=_PARTITION,
            minutes=self._limit_minutes,
            url=self._server.url,
            archive=ARCHIVE,
            region=REGION,
            bucket=BUCKET,
            endpoint=s3.endpoint,
            every=max(1.0, hour_s / 10),
            model=MODEL_FILENAME,
            attempts=MAX_ATTEMPTS,
            train=self._train_command(),
            steps=paced_trainer.N_STEPS // N_CHECKPOINTS,
        )
        with self.preempt_jobs():
            run = user.start_run(text + scaled_recovery(hour_s))
            self._wait_while(lambda: bool(list(user.find_supervisors(run))))
        store = SqliteStore(user.store_path)
        run_info = services.find_run(store, run)
        return reports.load_job_history(store, run_info, services.refresh_state(store, run_info))

    def run_plain(self, user: SlurmUser, s3: S3Server) -> JobHistory:
        """Submit an array with sbatch. Slurm requeues preempted jobs; one that reaches the limit has failed."""
        out, n_jobs = user.folder / "out", len(self._week.nodes)
        script = _PLAIN.format(
            out=out, python=sys.executable, url=self._server.url, archive=ARCHIVE, train=self._train_command()
        )
        options = (f"-p{_PARTITION}", f"--time={self._limit_minutes}", "--mem-per-cpu=1G")
        with self.preempt_jobs():
            user.sbatch("plain-week", f"export TMPDIR=${{TMPDIR:-/tmp}}; {script}", n_jobs, *options)
            self._wait_while(lambda: bool(self._cluster.run(["squeue", "-h", "-n", "plain-week"]).stdout))
        text = self._cluster.run(accounting_argv("now-1days")).stdout
        history = read_accounting_history("\n".join(_lines_of(text, "plain-week")), "plain")
        return arm_metrics.mark_missing_models(
            history, lambda job: (out / job.partition("_")[2] / MODEL_FILENAME).exists()
        )

    @property
    def _limit_minutes(self) -> int:
        return math.ceil(self._week.execute_limit_s / 60)

    def _train_command(self) -> str:
        return _TRAIN.format(
            python=sys.executable, train=self._folder / "train.py", nodes=self._seconds, url=self._server.url,
            weights=WEIGHTS, setup=SETUP_FRACTION,
        )  # fmt: skip

    def _wait_while(self, is_running: Callable[[], bool]) -> None:
        started_at = time.time()
        while is_running() and time.time() < started_at + _MAX_HOURS * self._week.hour_s:
            time.sleep(_POLL_INTERVAL_S)


def _node_name(node: ReplayNode) -> str:
    return f"n{node.number + 1}"


def _lines_of(accounting: str, job_name: str) -> Iterator[str]:
    """Yield the header and the rows of the jobs with this name and of their steps."""
    header, *rows = accounting.splitlines()
    yield header
    job_ids = {row.split("|")[0] for row in rows if row.split("|")[1] == job_name}
    yield from (row for row in rows if row.split("|")[0].partition(".")[0] in job_ids)


ARMS: Mapping[str, Callable[[SlurmReplay, SlurmUser, S3Server], JobHistory]] = {
    "plain": SlurmReplay.run_plain,
    "packtrain": SlurmReplay.run_packtrain,
}
