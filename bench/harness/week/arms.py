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

from harness.measure import tell
from harness.on_pool import Person
from harness.week import account, program
from harness.week.fault_schedule import SETUP_SHARE
from harness.week.site import KILLED, Place
from packtrain import services
from packtrain.report.history import History
from packtrain.report.readers.files import read
from packtrain.store import SqliteStore
from testbed.s3 import ACCESS_KEY, BUCKET, REGION, S3, SECRET_KEY

MODEL = "model.pt"
SAVES = 10  # in one training
ATTEMPTS = 5
_LONGEST_H = 60.0  # longer than anything in the published week
_LOOK_EVERY_S = 2.0
_KEYS = {"WEEK_KEY": ACCESS_KEY, "WEEK_SECRET": SECRET_KEY}
_WRAPPER = """#!/bin/bash
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
_SUBMIT = """+JOB_Site = "$$(GLIDEIN_Site:Unknown)"
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
checkpoint: {{path: checkpoint.pt, every: {every:.0f}s}}
expect: [{model}]
limits: {{grace: 5s, disk: 100MB, attempts: {attempts}}}
steps:
  - name: train
    run:
      command: >-
        exec {python} $PACKTRAIN_INPUTS/code/train.py --data $PACKTRAIN_INPUT --weights {weights}
        --setup-share {setup} --save {steps}
"""


def recovery_of(hour: float) -> str:
    """As by default, an hour for an hour: 30 s, 10 min, 1 h, 5 min would be as many in the scaled week, or nothing."""
    longest, least = max(1.0, hour / 6), hour / 12
    return f"recovery: {{wait: 1s, longestWait: {longest:.0f}s, avoid: {hour:.0f}s, leastGain: {least:.1f}s}}\n"


class Arm(ABC):
    """A folder of its own; `run` leaves what it made there."""

    def __init__(self, place: Place, folder: Path, s3: S3) -> None:
        self.place, self.week, self.s3 = place, place.week, s3
        self.jobs = len(place.week.machines)
        self.folder = folder
        self.person = Person(place.pool, folder, **_KEYS)
        shutil.copy(program.__file__, folder / "train.py")

    @abstractmethod
    def run(self) -> None:
        """The whole week."""

    @abstractmethod
    def history(self) -> History:
        """What happened, once it is over."""

    def _write_published(self) -> None:
        for number in range(self.jobs):
            (self.folder / "out" / str(number)).mkdir(parents=True)
        (self.folder / "logs").mkdir()
        caches = self.place.caches
        weights = caches.weights
        (self.folder / "run.sh").write_text(_WRAPPER.format(python=_python(), weights=weights, setup=SETUP_SHARE))
        (self.folder / "job.sub").write_text(_SUBMIT.format(folder=self.folder, url=caches.url, jobs=self.jobs))

    def _await(self, is_over: Callable[[], bool], began: float) -> None:
        ends = began + _LONGEST_H * self.week.hour
        told = 0.0
        while time.time() < ends and not is_over():
            hours = (time.time() - began) / self.week.hour
            if hours - told >= 1:
                told = hours
                tell(f"  {hours:.1f} h: {self._totals()}")
            time.sleep(_LOOK_EVERY_S)

    def _totals(self) -> str:
        return self.place.pool.run(["condor_q", "-allusers", "-totals"]).stdout.strip().splitlines()[-1]


def _python() -> str:
    return "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable


class Plain(Arm):
    """What a person did in the published week: submit, and release what is held after it had been under way (those
    jobs went on in the published table; those that were held at their first start did not)."""

    _RELEASED = f"JobStatus == 5 && HoldReasonCode == 13 && !({KILLED}) && NumShadowStarts > 1"

    def run(self) -> None:
        self._write_published()
        with self.place.week_begins() as began:
            self.place.pool.run(["condor_submit", "job.sub"], cwd=self.folder)
            self._released_at = began
            self._await(self._is_over, began)
            tell(f"  {self._totals()}")

    def history(self) -> History:
        """A log cannot tell whether there is a model; the folder can."""
        told = read([str(self.folder / "job.log")])
        return account.judged(replace(told, name="plain"), self._has_model)

    def _has_model(self, job: str) -> bool:
        return (self.folder / "out" / str(int(job.partition(".")[2])) / MODEL).exists()

    def _is_over(self) -> bool:
        held = self.place.pool.queue(self._RELEASED, "ProcId")
        if held and time.time() - self._released_at > self.week.hour:
            self._released_at = time.time()
            tell(f"  {len(held)} that are held are released")
            self.place.pool.run(["condor_release", "-constraint", self._RELEASED], check=False)
        return not held and not self.place.pool.queue(f"JobStatus != 5 || ({KILLED})", "ProcId")


class _OfPacktrain(Arm):
    @abstractmethod
    def _started(self) -> str:
        """The name of its run."""

    def run(self) -> None:
        with self.place.week_begins() as began:
            self.run_name = self._started()
            self._await(lambda: not self.place.pool.queue("true", "ClusterId"), began)

    def history(self) -> History:
        store = SqliteStore(self.person.store)
        row = services.find_run(store, self.run_name)
        return services.history_of(store, row, services.refresh(store, row))


class Adopted(_OfPacktrain):
    """`adopt` prints what `packtrain run job.sub` runs; only the times that recovery waits are scaled in it."""

    def _started(self) -> str:
        self._write_published()
        workflow = self.person.packtrain("adopt", "job.sub", "--expect", MODEL)
        return self.person.start(workflow + recovery_of(self.week.hour))


class Packtrain(_OfPacktrain):
    def _started(self) -> str:
        caches, hour = self.place.caches, self.week.hour
        text = _WORKFLOW.format(
            jobs=self.jobs,
            url=caches.url,
            weights=caches.weights,
            region=REGION,
            bucket=BUCKET,
            endpoint=self.s3.endpoint,
            every=max(1.0, hour / 10),
            model=MODEL,
            python=_python(),
            setup=SETUP_SHARE,
            attempts=ATTEMPTS,
            steps=program.STEPS // SAVES,
        )
        return self.person.start(text + recovery_of(hour))


ARMS: Mapping[str, Callable[[Place, Path, S3], Arm]] = {"plain": Plain, "adopted": Adopted, "packtrain": Packtrain}
