"""A user of packtrain on a test pool of any kind, and the resource usage of the supervisor."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SAMPLE_INTERVAL_S = 0.2
_START_TIMEOUT_S = 60.0
WORKFLOW = """name: bench
resources: {{tasks: 1, cpusPerTask: {cpus}, memPerCpu: 64, gpus: 0}}
count: {count}
{more}
steps: [{{run: {{command: {command}}}}}]
"""

RunPacktrain = Callable[[Sequence[object], Path, Mapping[str, str]], str]  # (arguments, folder, variables) -> stdout


def format_workflow(count: int, *, cpus: int = 1, more: str = "", command: str = "'true'") -> str:
    """Return a workflow of equal jobs."""
    return WORKFLOW.format(count=count, cpus=cpus, more=more, command=command)


class PacktrainUser:
    """A user with a folder and a store.

    Args:
        engine: Where runs are started.
        folder: A new folder.
        run_packtrain: Runs a packtrain command on the pool.
        environment: More variables.
    """

    def __init__(self, engine: str, folder: Path, run_packtrain: RunPacktrain, **environment: str) -> None:
        folder.mkdir()
        self.folder, self.store_path = folder, folder / "store.db"
        self._engine, self._run = engine, run_packtrain
        self._environment = {"PACKTRAIN_STORE": str(self.store_path), **environment}

    def run_packtrain(self, *arguments: object) -> str:
        return self._run(arguments, self.folder, self._environment)

    def start_run(self, workflow: str) -> str:
        """Start a detached run and return its id."""
        (self.folder / "workflow.yaml").write_text(workflow)
        output = self.run_packtrain("run", "workflow.yaml", "--on", self._engine, "--detach", "--offline", "--json")
        return str(json.loads(output)["run"])

    def list_jobs(self, run: str) -> list[Mapping[str, Any]]:
        """Return the jobs of a run, from `packtrain ps`."""
        return list(json.loads(self.run_packtrain("ps", run, "--json"))["jobs"])

    def run_folder(self, run: str) -> Path:
        return self.folder / ".packtrain/runs" / run


def check_succeeded(jobs: Sequence[Mapping[str, Any]]) -> None:
    """Exit if jobs failed, because failed jobs are fast and measure nothing."""
    if failed := [job for job in jobs if job["status"] != "succeeded"]:
        raise SystemExit(f"{len(failed)} of {len(jobs)} jobs did not succeed; the first: {failed[0]}")


class SupervisorProcess:
    """The supervisor of a run.

    Args:
        find_pids: Returns the process ids of supervisors; it is called until there is one.
    """

    def __init__(self, find_pids: Callable[[], Iterable[int]]) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not (pids := list(find_pids())):
            if time.monotonic() > deadline:
                raise SystemExit("no supervisor runs")
            time.sleep(SAMPLE_INTERVAL_S)
        (self._pid,) = pids
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
