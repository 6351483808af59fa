"""How light the agent and the command are: `python bench/agent.py --json` prints one line.

first_event_s    from the start of `python3 -I -S agent.pyz` to its first event (bound: 0.3)
agent_cpu_s      CPU of a whole attempt that runs `true`
agent_kb         size of the zip (bound: 300)
help_ms          wall time of `packtrain --help` (bound: 150)
job_overhead_s   `packtrain run` of that job against `sh -c true`, wall time
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
WORKFLOW = """name: nothing
resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}
steps: [{run: {command: "true"}}]
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        build_agent(here / "agent.pyz")
        job = Job("0", (), Resources(mem_per_cpu_mb=16), Limits(), (Step("true", RunAction("true")),))
        write_plan(Plan("bench", "bench", "local", (job,)), here / "plan.json")
        attempts = [_run_attempt(here, number) for number in range(N_ROUNDS)]
        figures = {
            "first_event_s": round(statistics.median(first for first, _ in attempts), 3),
            "agent_cpu_s": round(statistics.median(cpu for _, cpu in attempts), 3),
            "agent_kb": round((here / "agent.pyz").stat().st_size / 1000),
            "help_ms": round(1000 * statistics.median(_time_packtrain(here, "--help") for _ in range(N_ROUNDS))),
            "job_overhead_s": round(statistics.median(_time_run(here) for _ in range(N_ROUNDS)), 2),
        }
    print(json.dumps({"bench": "agent", **figures}))


def _run_attempt(here: Path, number: int) -> tuple[float, float]:
    """Seconds to the first event, and CPU seconds of the whole."""
    home = here / f"attempt-{number}"
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    command = [sys.executable, "-I", "-S", here / "agent.pyz", here / "plan.json", "--home", home]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    first = JournalReader(home / "journal.jsonl").read()[0].wall - started
    return first, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _time_packtrain(here: Path, *arguments: str) -> float:
    environment = {**os.environ, "PACKTRAIN_STORE": str(here / "store.db")}
    started = time.monotonic()
    command = [sys.executable, "-m", "packtrain", *arguments]
    subprocess.run(command, cwd=here, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - started


def _time_run(here: Path) -> float:
    (here / "workflow.yaml").write_text(WORKFLOW)
    ours = _time_packtrain(here, "run", "workflow.yaml", "--offline")
    started = time.monotonic()
    subprocess.run(["/bin/sh", "-c", "true"], check=True)
    return ours - (time.monotonic() - started)


if __name__ == "__main__":
    main()
