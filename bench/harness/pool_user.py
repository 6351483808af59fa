"""A user of an HTCondor test pool: packtrain runs and plain submit files, and what their user logs say."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.packtrain_user import PacktrainUser
from testbed.condor_pool import CondorPool

EVENT_HEADER = re.compile(r"^(\d{3}) \(\d+\.(\d+)\.\d+\) (\S+ \S+)", re.MULTILINE)
EXECUTE_EVENT, TERMINATED_EVENT = "001", "005"


class PoolUser(PacktrainUser):
    """A user of an HTCondor pool."""

    def __init__(self, pool: CondorPool, folder: Path, **environment: str) -> None:
        self.pool = pool
        super().__init__("htcondor", folder, self._run_on_pool, **environment)

    def _run_on_pool(self, arguments: Sequence[object], folder: Path, environment: Mapping[str, str]) -> str:
        env = {**self.pool.user_environment, **environment}
        return self.pool.run_packtrain(arguments, cwd=folder, env=env).stdout

    def wait_for_run(self, run: str, timeout_s: float) -> list[Mapping[str, Any]]:
        """Wait until the run has no jobs in the queue, or for the timeout. Return its jobs."""
        deadline = time.monotonic() + timeout_s
        constraint = f'PacktrainRun == "{run}"'
        while time.monotonic() < deadline and self.pool.queue(constraint, "ClusterId"):
            time.sleep(0.2)
        return self.list_jobs(run)

    def user_log_path(self, run: str) -> Path:
        return self.run_folder(run) / "htcondor/event.log"

    def condor_submit(self, submit_text: str) -> Path:
        """Submit jobs with condor_submit and return their user log."""
        (self.folder / "plain.sub").write_text(f"log = {self.folder}/plain.log\n{submit_text}")
        self.pool.run_as_user(["condor_submit", "plain.sub"], cwd=self.folder)
        return self.folder / "plain.log"


def find_supervisors(pool: CondorPool) -> Iterator[int]:
    """Yield the process ids of the supervisors in the access point's queue."""
    return (pid for pid, argv in pool.process_commands() if "supervise" in argv)


def read_event_times(log: Path) -> dict[tuple[str, int], float]:
    """Return the time of the last event of each kind and job."""
    events = EVENT_HEADER.findall(log.read_text()) if log.exists() else []
    return {(kind, int(job)): datetime.fromisoformat(timestamp).timestamp() for kind, job, timestamp in events}


def wait_for_jobs(log: Path, n_jobs: int, timeout_s: float) -> dict[tuple[str, int], float]:
    """Wait until `n_jobs` jobs have terminated, or for the timeout. Return the event times."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and sum(kind == TERMINATED_EVENT for kind, _ in read_event_times(log)) < n_jobs:
        time.sleep(0.1)
    return read_event_times(log)


def execution_span_s(event_times: Mapping[tuple[str, int], float]) -> float:
    """Return the time from the first start to the last end."""
    first = min(time_s for (kind, _), time_s in event_times.items() if kind == EXECUTE_EVENT)
    return max(time_s for (kind, _), time_s in event_times.items() if kind == TERMINATED_EVENT) - first


def write_job_wrapper(folder: Path, times_dir: Path) -> Path:
    """Write a USER_JOB_WRAPPER that stores the CPU time of each job in a file."""
    wrapper = folder / "wrapper.sh"
    wrapper.write_text(f'#!/bin/sh\n"$@"\ncode=$?\ntimes > {times_dir}/$$\nexit $code\n')
    wrapper.chmod(0o755)
    return wrapper


def parse_children_cpu_s(file: Path) -> float:
    """Return the sum of the second line, such as `0m0.120s 0m0.030s`."""
    minutes = re.findall(r"(\d+)m([\d.]+)s", file.read_text().splitlines()[1])
    return sum(60 * int(minute) + float(second) for minute, second in minutes)
