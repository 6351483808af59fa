"""Trainings of packtrain on the pool, to which things happen."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

from tests.support.cli_runs import PATIENCE_S
from tests.support.pool_desk import PoolDesk
from tests.support.programs import counting_trainer

WORKFLOW = """
name: counting
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 100, gpus: 0}}
checkpoint: {{path: ckpt.bin, every: {every}}}
expect: [model.bin]
limits: {{grace: 5s, attempts: {attempts}}}
htcondor: {{{lines}}}
steps: [{{name: train, run: {{command: "exec {python} -S {program} --steps {steps} --pace {pace} {gate}"}}}}]
"""


class PoolTraining:
    """One job that counts and saves each step, started by `packtrain run`. With `wait_at` it gets no further than that
    step before `go_on`, however slow whatever happens to it meanwhile is."""

    def __init__(
        self, desk: PoolDesk, *, steps=60, pace=0.05, every="1h", attempts=3, wait_at=-1, **lines: object
    ) -> None:
        self.desk, self.steps, self.gate = desk, steps, desk.folder / "gate"
        text = ", ".join(f"{name}: '{value}'" for name, value in lines.items())
        program = {"python": sys.executable, "program": counting_trainer.__file__, "steps": steps, "pace": pace}
        gate = f"--wait-at {wait_at} --gate {self.gate}"
        desk.write(WORKFLOW.format(every=every, attempts=attempts, lines=text, gate=gate, **program))
        self.process: subprocess.Popen = desk.start("run", "workflow.yaml", "--on", "htcondor")

    def await_step(self, step: int) -> None:
        """Until it has got so far, at whatever site."""
        self.desk.await_some(lambda: self.step() >= step)

    def await_log(self, text: str, patience_s: float = PATIENCE_S) -> None:
        self.desk.await_some(lambda: text in self.log(), patience_s)

    def go_on(self) -> None:
        self.gate.touch()

    def step(self) -> int:
        boxes = filter(self._is_mine, self.desk.pool.folder.glob("execute/*/dir_*/scratch"))
        return max((_step(box / "sandbox/output/ckpt.bin") for box in boxes), default=0)

    def _is_mine(self, sandbox: Path) -> bool:
        """A starter that was killed leaves its sandbox behind."""
        with contextlib.suppress(OSError):
            return self.desk.run_folder().name in (sandbox / "plan.json").read_text()
        return False

    @property
    def jobs(self) -> str:
        """A constraint for it."""
        return "JobUniverse == 5"

    def finish(self, code: int = 0, patience_s: float = PATIENCE_S) -> str:
        """What the command said at its end, which must have this exit code."""
        try:
            out, err = self.process.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()  # it would go on during the tests that follow
            out, err = self.process.communicate()
        assert self.process.returncode == code, f"exit {self.process.returncode}\n{out}\n{err}\n{self.log()}"
        return out + err

    def log(self) -> str:
        """HTCondor's; empty before it was submitted."""
        path = self.desk.run_folder() / "htcondor/user.log"
        return path.read_text() if path.exists() else ""

    def status(self) -> str:
        """As `ps` has it."""
        (job,) = self.desk.json("ps", self.desk.run_folder().name)["jobs"]
        return job["status"]

    def starts(self) -> list[int]:
        """At which step each life of the program began."""
        logs = sorted(self.desk.run_folder().glob("jobs/0/attempts/*/logs/train.out"))
        lines = [line for log in logs for line in log.read_text().splitlines()]
        return [int(line.rpartition(" ")[2]) for line in lines if line.startswith("starts at ")]

    def assert_done(self) -> None:
        """It reached its end, and `ps` says so."""
        model = self.desk.run_folder() / "jobs/0/output/model.bin"
        assert counting_trainer.step_of(model.read_bytes()) == self.steps
        assert self.status() == "succeeded"


def _step(path: Path) -> int:
    try:
        return counting_trainer.step_of(path.read_bytes())
    except (OSError, ValueError, IndexError):
        return 0  # gone, or not there yet
