"""A person at the access point of a test pool: runs of packtrain, plain submit files, and what the supervisor costs."""

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
    """A folder and a store of its own."""

    def __init__(self, pool: CondorPool, folder: Path, **environment: str) -> None:
        folder.mkdir()
        self.pool, self.folder, self.store_path = pool, folder, folder / "store.db"
        self._environment = {**pool.user_environment, "PACKTRAIN_STORE": str(self.store_path), **environment}

    def run_packtrain(self, *arguments: object) -> str:
        return self.pool.run_packtrain(arguments, cwd=self.folder, env=self._environment).stdout

    def start_run(self, workflow: str) -> str:
        """The name of the run, which goes on by itself."""
        (self.folder / "workflow.yaml").write_text(workflow)
        said = self.run_packtrain("run", "workflow.yaml", "--on", "htcondor", "--detach", "--offline", "--json")
        return str(json.loads(said)["run"])

    def list_jobs(self, run: str) -> list[Mapping[str, Any]]:
        """As `packtrain ps` lists them."""
        return list(json.loads(self.run_packtrain("ps", run, "--json"))["jobs"])

    def wait_for_run(self, run: str, timeout_s: float) -> list[Mapping[str, Any]]:
        """The jobs when none is left in the queue and the run has ended, or when the time is over."""
        ends = time.monotonic() + timeout_s
        mine = f'PacktrainRun == "{run}"'
        while time.monotonic() < ends and self.pool.queue(mine, "ClusterId"):
            time.sleep(0.2)
        return self.list_jobs(run)

    def user_log_path(self, run: str) -> Path:
        return self.folder / ".packtrain/runs" / run / "htcondor/event.log"

    def condor_submit(self, submit_text: str) -> Path:
        """The user log of a plain submit file."""
        (self.folder / "plain.sub").write_text(f"log = {self.folder}/plain.log\n{submit_text}")
        self.pool.run_as_user(["condor_submit", "plain.sub"], cwd=self.folder)
        return self.folder / "plain.log"


class SupervisorProcess:
    """The process on the access point that attends the run."""

    def __init__(self, pool: CondorPool) -> None:
        (self._pid,) = pool.wait_for(lambda: list(_find_supervisors(pool)), "no supervisor runs")
        self.peak_mb = 0.0

    def measure_cpu_percent(self, duration_s: float) -> float:
        """Percent of a core that it takes, for so long or until it ends."""
        began, first = time.monotonic(), self._cpu_s()
        last = first
        while time.monotonic() - began < duration_s and (now := self._cpu_s()):
            last = now
            time.sleep(SAMPLE_INTERVAL_S)
        return 100 * (last - first) / (time.monotonic() - began)

    def _cpu_s(self) -> float:
        """0 when it has ended."""
        try:
            fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
            status = Path(f"/proc/{self._pid}/status").read_text()
        except OSError:
            return 0.0
        if peak := re.search(r"VmHWM:\s+(\d+)", status):
            self.peak_mb = int(peak.group(1)) / 1000
        return sum(map(int, fields[11:15])) / CLOCK_TICKS_PER_S


def _find_supervisors(pool: CondorPool) -> Iterator[int]:
    return (pid for pid, words in pool.process_commands() if "supervise" in words)


def read_event_times(log: Path) -> dict[tuple[str, int], float]:
    """When each event of each job came (the last of a kind)."""
    found = EVENT_HEADER.findall(log.read_text()) if log.exists() else []
    return {(kind, int(job)): datetime.fromisoformat(when).timestamp() for kind, job, when in found}


def wait_for_jobs(log: Path, n_jobs: int, timeout_s: float) -> dict[tuple[str, int], float]:
    """The log's events once so many jobs have ended, or when the time is over."""
    ends = time.monotonic() + timeout_s
    while time.monotonic() < ends and sum(kind == TERMINATED_EVENT for kind, _ in read_event_times(log)) < n_jobs:
        time.sleep(0.1)
    return read_event_times(log)


def execution_span_s(event_times: Mapping[tuple[str, int], float]) -> float:
    """From the first start to the last end."""
    first = min(when for (kind, _), when in event_times.items() if kind == EXECUTE_EVENT)
    return max(when for (kind, _), when in event_times.items() if kind == TERMINATED_EVENT) - first


def write_job_wrapper(folder: Path, times_dir: Path) -> Path:
    """For USER_JOB_WRAPPER: writes what the shell says of its children's CPU time into a file for each job."""
    wrapper = folder / "wrapper.sh"
    wrapper.write_text(f'#!/bin/sh\n"$@"\ncode=$?\ntimes > {times_dir}/$$\nexit $code\n')
    wrapper.chmod(0o755)
    return wrapper


def parse_children_cpu_s(file: Path) -> float:
    """From the second line, such as 0m0.120s 0m0.030s."""
    minutes = re.findall(r"(\d+)m([\d.]+)s", file.read_text().splitlines()[1])
    return sum(60 * int(minute) + float(second) for minute, second in minutes)
