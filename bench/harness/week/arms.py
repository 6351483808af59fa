"""Three ways to run the hundred jobs: the published submit file through HTCondor alone (`plain`), the same file through
packtrain (`adopted`), and a workflow whose program saves what it has (`packtrain`)."""

from __future__ import annotations

import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from harness.measure import print_progress
from harness.on_pool import PoolUser
from harness.week import account, program
from harness.week.fault_schedule import SETUP_FRACTION
from harness.week.site import TRANSFER_TIMEOUT_HOLD, ReplayPool
from packtrain import services
from packtrain.report.history import JobHistory
from packtrain.report.readers.files import read_history
from packtrain.store import SqliteStore
from testbed.s3 import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, S3Server

MODEL_FILENAME = "model.pt"
N_CHECKPOINTS = 10  # in one training
MAX_ATTEMPTS = 5
_MAX_HOURS = 60.0  # longer than anything in the published week
_POLL_INTERVAL_S = 2.0
_S3_ENVIRONMENT = {"WEEK_KEY": ACCESS_KEY, "WEEK_SECRET": SECRET_KEY}
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
       accessKeyId: "${{env:WEEK_KEY}}", secretAccessKey: "${{env:WEEK_SECRET}}"}}
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
    """As by default, an hour for an hour: 30 s, 10 min, 1 h, 5 min would be as many in the scaled week, or nothing."""
    longest, least = max(1.0, hour_s / 6), hour_s / 12
    return f"recovery: {{retryDelay: 1s, maxWait: {longest:.0f}s, avoid: {hour_s:.0f}s, minGain: {least:.1f}s}}\n"


class Arm(ABC):
    """A folder of its own; `run` leaves what it made there."""

    def __init__(self, replay_pool: ReplayPool, folder: Path, s3: S3Server) -> None:
        self.replay_pool, self.week, self.s3 = replay_pool, replay_pool.week, s3
        self.n_jobs = len(replay_pool.week.nodes)
        self.folder = folder
        self.user = PoolUser(replay_pool.pool, folder, **_S3_ENVIRONMENT)
        shutil.copy(program.__file__, folder / "train.py")

    @abstractmethod
    def run(self) -> None:
        """The whole week."""

    @abstractmethod
    def load_history(self) -> JobHistory:
        """What happened, once it is over."""

    def _write_published_files(self) -> None:
        for number in range(self.n_jobs):
            (self.folder / "out" / str(number)).mkdir(parents=True)
        (self.folder / "logs").mkdir()
        caches = self.replay_pool.federation
        weights = caches.weights_url
        (self.folder / "run.sh").write_text(_JOB_SCRIPT.format(python=_python(), weights=weights, setup=SETUP_FRACTION))
        (self.folder / "job.sub").write_text(
            _SUBMIT_FILE.format(folder=self.folder, url=caches.dataset_url, jobs=self.n_jobs)
        )

    def _wait_until(self, is_finished: Callable[[], bool], started_at: float) -> None:
        ends = started_at + _MAX_HOURS * self.week.hour_s
        told = 0.0
        while time.time() < ends and not is_finished():
            hours = (time.time() - started_at) / self.week.hour_s
            if hours - told >= 1:
                told = hours
                print_progress(f"  {hours:.1f} h: {self._queue_totals()}")
            time.sleep(_POLL_INTERVAL_S)

    def _queue_totals(self) -> str:
        return self.replay_pool.pool.run_as_user(["condor_q", "-allusers", "-totals"]).stdout.strip().splitlines()[-1]


def _python() -> str:
    return "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable


class HtcondorArm(Arm):
    """What a person did in the published week: submit, and release what is held after it had been under way (those
    jobs went on in the published table; those that were held at their first start did not)."""

    _RELEASABLE_HOLDS = f"JobStatus == 5 && HoldReasonCode == 13 && !({TRANSFER_TIMEOUT_HOLD}) && NumShadowStarts > 1"

    def run(self) -> None:
        self._write_published_files()
        with self.replay_pool.start_week() as began:
            self.replay_pool.pool.run_as_user(["condor_submit", "job.sub"], cwd=self.folder)
            self._last_release_at = began
            self._wait_until(self._is_finished, began)
            print_progress(f"  {self._queue_totals()}")

    def load_history(self) -> JobHistory:
        """A log cannot tell whether there is a model; the folder can."""
        told = read_history([str(self.folder / "job.log")])
        return account.mark_missing_models(replace(told, name="plain"), self._has_model)

    def _has_model(self, job: str) -> bool:
        return (self.folder / "out" / str(int(job.partition(".")[2])) / MODEL_FILENAME).exists()

    def _is_finished(self) -> bool:
        held = self.replay_pool.pool.queue(self._RELEASABLE_HOLDS, "ProcId")
        if held and time.time() - self._last_release_at > self.week.hour_s:
            self._last_release_at = time.time()
            print_progress(f"  {len(held)} that are held are released")
            self.replay_pool.pool.run_as_user(["condor_release", "-constraint", self._RELEASABLE_HOLDS], check=False)
        return not held and not self.replay_pool.pool.queue(f"JobStatus != 5 || ({TRANSFER_TIMEOUT_HOLD})", "ProcId")


class _PacktrainArmBase(Arm):
    @abstractmethod
    def _start_run(self) -> str:
        """The name of its run."""

    def run(self) -> None:
        with self.replay_pool.start_week() as began:
            self.run_name = self._start_run()
            self._wait_until(lambda: not self.replay_pool.pool.queue("true", "ClusterId"), began)

    def load_history(self) -> JobHistory:
        store = SqliteStore(self.user.store_path)
        row = services.find_run(store, self.run_name)
        return services.load_job_history(store, row, services.refresh_state(store, row))


class ConvertedArm(_PacktrainArmBase):
    """`adopt` prints what `packtrain run job.sub` runs; only the times that recovery waits are scaled in it."""

    def _start_run(self) -> str:
        self._write_published_files()
        workflow = self.user.run_packtrain("adopt", "job.sub", "--expect", MODEL_FILENAME)
        return self.user.start_run(workflow + scaled_recovery(self.week.hour_s))


class PacktrainArm(_PacktrainArmBase):
    def _start_run(self) -> str:
        caches, hour = self.replay_pool.federation, self.week.hour_s
        text = _WORKFLOW.format(
            jobs=self.n_jobs,
            url=caches.dataset_url,
            weights=caches.weights_url,
            region=REGION,
            bucket=BUCKET,
            endpoint=self.s3.endpoint,
            every=max(1.0, hour / 10),
            model=MODEL_FILENAME,
            python=_python(),
            setup=SETUP_FRACTION,
            attempts=MAX_ATTEMPTS,
            steps=program.N_STEPS // N_CHECKPOINTS,
        )
        return self.user.start_run(text + scaled_recovery(hour))


ARMS: Mapping[str, Callable[[ReplayPool, Path, S3Server], Arm]] = {
    "plain": HtcondorArm,
    "adopted": ConvertedArm,
    "packtrain": PacktrainArm,
}
