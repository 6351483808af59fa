"""A user of a test pool: packtrain runs, plain submit files, and the resource usage of the supervisor."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from testbed.condor_pool import CondorPool

CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
EVENT_HEADER = re.compile(r"^(\d{3}) \(\d+\.(\d+)\.\d+\) (\S+ \S+)", re.MULTILINE)
EXECUTE_EVENT, TERMINATED_EVENT = "001", "005"
SAMPLE_INTERVAL_S = 0.2


class PoolUser:
    """A user with a folder and a store."""

    def __init__(self, pool: CondorPool, folder: Path, **environment: str) -> None:
        folder.mkdir()
        self.pool, self.folder, self.store_path = pool, folder, folder / "store.db"
        self._environment = {**pool.user_environment, "PACKTRAIN_STORE": str(self.store_path), **environment}

    def run_packtrain(self, *arguments: object) -> str:
        return self.pool.run_packtrain(arguments, cwd=self.folder, env=self._environment).stdout

    def start_run(self, workflow: str) -> str:
        """Start a detached run and return its id."""
        (self.folder / "workflow.yaml").write_text(workflow)
        output = self.run_packtrain("run", "workflow.yaml", "--on", "htcondor", "--detach", "--offline", "--json")
        return str(json.loads(output)["run"])

    def list_jobs(self, run: str) -> list[Mapping[str, Any]]:
        """Return the jobs of a run, from `packtrain ps`."""
        return list(json.loads(self.run_packtrain("ps", run, "--json"))["jobs"])

    def wait_for_run(self, run: str, timeout_s: float) -> list[Mapping[str, Any]]:
        """Wait until the run has no jobs in the queue, or for the timeout. Return its jobs."""
        deadline = time.monotonic() + timeout_s
        constraint = f'PacktrainRun == "{run}"'
        while time.monotonic() < deadline and self.pool.queue(constraint, "ClusterId"):
            time.sleep(0.2)
        return self.list_jobs(run)

    def user_log_path(self, run: str) -> Path:
        return self.folder / ".packtrain/runs" / run / "htcondor/event.log"

    def condor_submit(self, submit_text: str) -> Path:
        """Submit jobs with condor_submit and return their user log."""
        (self.folder / "plain.sub").write_text(f"log = {self.folder}/plain.log\n{submit_text}")
        self.pool.run_as_user(["condor_submit", "plain.sub"], cwd=self.folder)
        return self.folder / "plain.log"


class SupervisorProcess:
    """The supervisor process on the access point."""

    def __init__(self, pool: CondorPool) -> None:
        (self._pid,) = pool.wait_for(lambda: list(_find_supervisors(pool)), "no supervisor runs")
        self.peak_mb = 0.0

    def measure_cpu_percent(self, duration_s: float) -> float:
        """Return its CPU usage in percent of a core, for the duration or until it exits."""
        started_at, first_cpu_s = time.monotonic(), self._cpu_s()
        last_cpu_s = first_cpu_s
        while time.monotonic() - started_at < duration_s and (cpu_s := self._cpu_s()):
            last_cpu_s = cpu_s
            time.sleep(SAMPLE_INTERVAL_S)
        return 100 * (last_cpu_s - first_cpu_s) / (time.monotonic() - started_at)

    def _cpu_s(self) -> float:
        """Return its CPU time, or 0 if it has exited."""
        try:
            fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
            status = Path(f"/proc/{self._pid}/status").read_text()
        except OSError:
            return 0.0
        if peak := re.search(r"VmHWM:\s+(\d+)", status):
            self.peak_mb = int(peak.group(1)) / 1000
        return sum(map(int, fields[11:15])) / CLOCK_TICKS_PER_S


def _find_supervisors(pool: CondorPool) -> Iterator[int]:
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
