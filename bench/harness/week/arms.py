"""Three ways to run the hundred jobs.

`plain`: the published submit file with HTCondor alone. `converted`: the same file with packtrain. `packtrain`: a
workflow whose program saves checkpoints.
"""

from __future__ import annotations

import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from harness.measure import print_progress
from harness.pool_user import PoolUser
from harness.week import arm_metrics, paced_trainer
from harness.week.fault_schedule import SETUP_FRACTION
from harness.week.replay_pool import TRANSFER_TIMEOUT_HOLD, ReplayPool
from packtrain import services
from packtrain.report.history import JobHistory
from packtrain.report.readers.files import read_history
from packtrain.runs import reports
from packtrain.store import SqliteStore
from testbed.s3 import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, S3Server

MODEL_FILENAME = "model.pt"
N_CHECKPOINTS = 10  # per training
MAX_ATTEMPTS = 5
_MAX_HOURS = 60.0  # longer than the published week
_POLL_INTERVAL_S = 2.0
S3_ENVIRONMENT = {"REPLAY_S3_KEY": ACCESS_KEY, "REPLAY_S3_SECRET": SECRET_KEY}
_JOB_SCRIPT = """#!/bin/bash
mkdir train
tar -xf ILSVRC2012_img_train.tar -C train
for archive in train/*.tar; do
    mkdir ${{archive%.tar}}
    tar -xf $archive -C ${{archive%.tar}}
    rm $archive
done
{python} train.py --data train --weights {weights} --setup-share {setup}
rm -rf train ILSVRC2012_img_train.tar
"""
_SUBMIT_FILE = """+JOB_Site = "$$(GLIDEIN_Site:Unknown)"
log    = {folder}/job.log
error  = {folder}/logs/job_$(Process).err
output = {folder}/logs/job_$(Process).out
executable = {folder}/run.sh
initialdir = {folder}/out/$(Process)
transfer_input_files = {folder}/train.py, {url}
should_transfer_files   = YES
when_to_transfer_output = ON_EXIT
ulog_execute_attrs = GLIDEIN_ResourceName
request_cpus   = 1
request_gpus   = 1
request_memory = 1GB
request_disk   = 1GB
queue {jobs}
"""
_WORKFLOW = """name: week
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 1GB, gpus: 1}}
count: {jobs}
input: {{osdf: {{url: "{url}"}}, nested: true}}
inputs: {{code: {{file: {{path: train.py}}}}}}
output:
  s3: {{region: {region}, bucketUrl: "s3://{bucket}", path: "/week/{{job}}", endpointUrl: "{endpoint}",
       accessKeyId: "${{env:REPLAY_S3_KEY}}", secretAccessKey: "${{env:REPLAY_S3_SECRET}}"}}
checkpoint: {{path: checkpoint.pt, minInterval: {every:.0f}s}}
expect: [{model}]
limits: {{grace: 5s, disk: 100MB, maxAttempts: {attempts}}}
steps:
  - name: train
    run:
      command: >-
        exec {python} $PACKTRAIN_INPUTS/code/train.py --data $PACKTRAIN_INPUT --weights {weights}
        --setup-share {setup} --save {steps}
"""


def scaled_recovery(hour_s: float) -> str:
    """Return the default waits of `recovery` (30 s, 10 min, 1 h, 5 min), scaled to the replay."""
    max_wait, min_gain = max(1.0, hour_s / 6), hour_s / 12
    return (
        f"recovery: {{retryDelay: 1s, maxWait: {max_wait:.0f}s, avoidFor: {hour_s:.0f}s, minGain: {min_gain:.1f}s}}\n"
    )


class Arm(ABC):
    """One way to run the jobs. Its files are in `folder`."""

    def __init__(self, replay_pool: ReplayPool, folder: Path, s3: S3Server) -> None:
        self.replay_pool, self.week, self.s3 = replay_pool, replay_pool.week, s3
        self.n_jobs = len(replay_pool.week.nodes)
        self.folder = folder
        self.user = PoolUser(replay_pool.pool, folder, **S3_ENVIRONMENT)
        shutil.copy(paced_trainer.__file__, folder / "train.py")

    @abstractmethod
    def run(self) -> None:
        """Run the complete week."""

    @abstractmethod
    def load_history(self) -> JobHistory:
        """Return the history of the jobs after the run."""

    def _write_published_files(self) -> None:
        for number in range(self.n_jobs):
            (self.folder / "out" / str(number)).mkdir(parents=True)
        (self.folder / "logs").mkdir()
        federation = self.replay_pool.federation
        (self.folder / "run.sh").write_text(
            _JOB_SCRIPT.format(python=_python(), weights=federation.weights_url, setup=SETUP_FRACTION)
        )
        (self.folder / "job.sub").write_text(
            _SUBMIT_FILE.format(folder=self.folder, url=federation.dataset_url, jobs=self.n_jobs)
        )

    def _wait_until(self, is_finished: Callable[[], bool], started_at: float) -> None:
        deadline = started_at + _MAX_HOURS * self.week.hour_s
        printed_hours = 0.0
        while time.time() < deadline and not is_finished():
            hours = (time.time() - started_at) / self.week.hour_s
            if hours - printed_hours >= 1:
                printed_hours = hours
                print_progress(f"  {hours:.1f} h: {self._queue_totals()}")
            time.sleep(_POLL_INTERVAL_S)

    def _queue_totals(self) -> str:
        return self.replay_pool.pool.run_as_user(["condor_q", "-allusers", "-totals"]).stdout.strip().splitlines()[-1]


def _python() -> str:
    return "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable


class HtcondorArm(Arm):
    """Act like the users in the published week: submit, and release jobs that are held after their first execution.

    In the published table those jobs continued; jobs held in their first execution did not.
    """

    _RELEASABLE_HOLDS = f"JobStatus == 5 && HoldReasonCode == 13 && !({TRANSFER_TIMEOUT_HOLD}) && NumShadowStarts > 1"

    def run(self) -> None:
        self._write_published_files()
        with self.replay_pool.start_week() as started_at:
            self.replay_pool.pool.run_as_user(["condor_submit", "job.sub"], cwd=self.folder)
            self._last_release_at = started_at
            self._wait_until(self._is_finished, started_at)
            print_progress(f"  {self._queue_totals()}")

    def load_history(self) -> JobHistory:
        """Return the history; whether a job has a model is checked in the output folder."""
        history = read_history([str(self.folder / "job.log")])
        return arm_metrics.mark_missing_models(replace(history, name="plain"), self._has_model)

    def _has_model(self, job: str) -> bool:
        return (self.folder / "out" / str(int(job.partition(".")[2])) / MODEL_FILENAME).exists()

    def _is_finished(self) -> bool:
        held = self.replay_pool.pool.queue(self._RELEASABLE_HOLDS, "ProcId")
        if held and time.time() - self._last_release_at > self.week.hour_s:
            self._last_release_at = time.time()
            print_progress(f"  releasing {len(held)} held jobs")
            self.replay_pool.pool.run_as_user(["condor_release", "-constraint", self._RELEASABLE_HOLDS], check=False)
        return not held and not self.replay_pool.pool.queue(f"JobStatus != 5 || ({TRANSFER_TIMEOUT_HOLD})", "ProcId")


class _PacktrainArmBase(Arm):
    """An arm that runs packtrain."""

    @abstractmethod
    def _start_run(self) -> str:
        """Start the run and return its id."""

    def run(self) -> None:
        with self.replay_pool.start_week() as started_at:
            self.run_id = self._start_run()
            self._wait_until(lambda: not self.replay_pool.pool.queue("true", "ClusterId"), started_at)

    def load_history(self) -> JobHistory:
        store = SqliteStore(self.user.store_path)
        run_info = services.find_run(store, self.run_id)
        return reports.load_job_history(store, run_info, services.refresh_state(store, run_info))


class ConvertedArm(_PacktrainArmBase):
    """Run the workflow that `packtrain convert` prints, with the waits of `recovery` scaled."""

    def _start_run(self) -> str:
        self._write_published_files()
        workflow = self.user.run_packtrain("convert", "job.sub", "--expect", MODEL_FILENAME)
        return self.user.start_run(workflow + scaled_recovery(self.week.hour_s))


class PacktrainArm(_PacktrainArmBase):
    """Run a workflow with checkpoints."""

    def _start_run(self) -> str:
        federation, hour_s = self.replay_pool.federation, self.week.hour_s
        text = _WORKFLOW.format(
            jobs=self.n_jobs,
            url=federation.dataset_url,
            weights=federation.weights_url,
            region=REGION,
            bucket=BUCKET,
            endpoint=self.s3.endpoint,
            every=max(1.0, hour_s / 10),
            model=MODEL_FILENAME,
            python=_python(),
            setup=SETUP_FRACTION,
            attempts=MAX_ATTEMPTS,
            steps=paced_trainer.N_STEPS // N_CHECKPOINTS,
        )
        return self.user.start_run(text + scaled_recovery(hour_s))


ARMS: Mapping[str, Callable[[ReplayPool, Path, S3Server], Arm]] = {
    "plain": HtcondorArm,
    "converted": ConvertedArm,
    "packtrain": PacktrainArm,
}
