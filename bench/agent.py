"""Startup cost of the agent and the command: `python bench/agent.py --json` prints one line.

first_event_s    from the start of `python3 -I -S agent.pyz` to its first event (bound: 0.3)
agent_cpu_s      CPU time of an attempt that runs `true` (bound: 0.45)
agent_kb         size of the zip (bound: 450)
help_ms          wall time of `packtrain --help` (bound: 150)
job_overhead_s   wall time of `packtrain run` of that job, minus `sh -c true`
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from packtrain.engines.bundle import build_agent
from packtrain.events import JournalReader
from packtrain.plan import Job, Limits, Plan, Resources, RunAction, Step, write_plan

N_ROUNDS = 7
WORKFLOW = """name: empty
resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}
steps: [{run: {command: "true"}}]
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        workdir = Path(folder)
        build_agent(workdir / "agent.pyz")
        job = Job("0", (), Resources(mem_per_cpu_mb=16), Limits(), (Step("true", RunAction("true")),))
        write_plan(Plan("bench", "bench", "local", (job,)), workdir / "plan.json")
        attempts = [_run_attempt(workdir, number) for number in range(N_ROUNDS)]
        metrics = {
            "first_event_s": round(statistics.median(first for first, _ in attempts), 3),
            "agent_cpu_s": round(statistics.median(cpu for _, cpu in attempts), 3),
            "agent_kb": round((workdir / "agent.pyz").stat().st_size / 1000),
            "help_ms": round(1000 * statistics.median(_time_packtrain(workdir, "--help") for _ in range(N_ROUNDS))),
            "job_overhead_s": round(statistics.median(_time_run(workdir) for _ in range(N_ROUNDS)), 2),
        }
    print(json.dumps({"bench": "agent", **metrics}))


def _run_attempt(workdir: Path, number: int) -> tuple[float, float]:
    """Return the seconds to the first event, and the CPU seconds of the attempt."""
    attempt_folder = workdir / f"attempt-{number}"
    before, started_at = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    command = [
        sys.executable,
        "-I",
        "-S",
        workdir / "agent.pyz",
        workdir / "plan.json",
        "--attempt-folder",
        attempt_folder,
    ]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    first = JournalReader(attempt_folder / "journal.jsonl").read()[0].wall - started_at
    return first, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _time_packtrain(workdir: Path, *arguments: str) -> float:
    environment = {**os.environ, "PACKTRAIN_STORE": str(workdir / "store.db")}
    started_at = time.monotonic()
    command = [sys.executable, "-m", "packtrain", *arguments]
    subprocess.run(command, cwd=workdir, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - started_at


def _time_run(workdir: Path) -> float:
    (workdir / "workflow.yaml").write_text(WORKFLOW)
    packtrain_s = _time_packtrain(workdir, "run", "workflow.yaml", "--offline")
    started_at = time.monotonic()
    subprocess.run(["/bin/sh", "-c", "true"], check=True)
    return packtrain_s - (time.monotonic() - started_at)


if __name__ == "__main__":
    main()
