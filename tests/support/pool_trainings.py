"""Trainings on the test pool, for tests of evictions, holds and other faults."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

from tests.support.cli_runs import TIMEOUT_S
from tests.support.pool_workspace import PoolWorkspace
from tests.support.programs import counting_trainer

WORKFLOW = """
name: counting
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 100, gpus: 0}}
checkpoint: {{path: ckpt.bin, minInterval: {every}}}
expect: [model.bin]
limits: {{grace: 5s, maxAttempts: {attempts}}}
htcondor: {{{lines}}}
steps: [{{name: train, run: {{command: "exec {python} -S {program} --steps {steps} --pace {pace} {gate}"}}}}]
"""


class PoolTraining:
    """One job that counts and saves each step, started by `packtrain run`.

    With `wait_at` it does not get past that step before `open_gate`, so that a test has time for its faults.
    """

    def __init__(
        self,
        workspace: PoolWorkspace,
        *,
        n_steps=60,
        step_s=0.05,
        checkpoint_interval="1h",
        max_attempts=3,
        wait_at=-1,
        **submit_commands: object,
    ) -> None:
        self.workspace, self.n_steps, self.gate = workspace, n_steps, workspace.folder / "gate"
        text = ", ".join(f"{name}: '{value}'" for name, value in submit_commands.items())
        program = {"python": sys.executable, "program": counting_trainer.__file__, "steps": n_steps, "pace": step_s}
        gate = f"--wait-at {wait_at} --gate {self.gate}"
        workspace.write_file(
            WORKFLOW.format(every=checkpoint_interval, attempts=max_attempts, lines=text, gate=gate, **program)
        )
        self.process: subprocess.Popen = workspace.start("run", "workflow.yaml", "--on", "htcondor")

    def wait_for_step(self, step: int) -> None:
        """Wait until the training has reached a step, at any site."""
        self.workspace.wait_for(lambda: self.current_step() >= step)

    def wait_for_log(self, text: str, timeout_s: float = TIMEOUT_S) -> None:
        self.workspace.wait_for(lambda: text in self.read_user_log(), timeout_s)

    def open_gate(self) -> None:
        self.gate.touch()

    def current_step(self) -> int:
        """Return the step of the newest checkpoint in any sandbox of this run."""
        sandboxes = filter(self._is_mine, self.workspace.pool.folder.glob("execute/*/dir_*/scratch"))
        return max((_checkpoint_step(path / "sandbox/output/ckpt.bin") for path in sandboxes), default=0)

    def _is_mine(self, sandbox: Path) -> bool:
        """Return whether a sandbox belongs to this run: a starter that was killed leaves its sandbox behind."""
        with contextlib.suppress(OSError):
            return self.workspace.run_folder().name in (sandbox / "plan.json").read_text()
        return False

    @property
    def constraint(self) -> str:
        """A constraint for the job."""
        return "JobUniverse == 5"

    def wait_for_exit(self, exit_code: int = 0, timeout_s: float = TIMEOUT_S) -> str:
        """Wait for the command, check its exit code, and return its output."""
        try:
            out, err = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()  # it would continue during the next tests
            out, err = self.process.communicate()
        assert self.process.returncode == exit_code, (
            f"exit {self.process.returncode}\n{out}\n{err}\n{self.read_user_log()}"
        )
        return out + err

    def read_user_log(self) -> str:
        """Return HTCondor's log of the run; empty before the job is submitted."""
        path = self.workspace.run_folder() / "htcondor/event.log"
        return path.read_text() if path.exists() else ""

    def status(self) -> str:
        """Return the status of the job in `packtrain ps`."""
        (job,) = self.workspace.run_json("ps", self.workspace.run_folder().name)["jobs"]
        return job["status"]

    def start_steps(self) -> list[int]:
        """Return the step at which each execution of the program started."""
        logs = sorted(self.workspace.run_folder().glob("jobs/0/attempts/*/logs/train.out"))
        lines = [line for log in logs for line in log.read_text().splitlines()]
        return [int(line.rpartition(" ")[2]) for line in lines if line.startswith("starts at ")]

    def assert_succeeded(self) -> None:
        """Check that the training finished, and that `packtrain ps` reports it."""
        model = self.workspace.run_folder() / "jobs/0/output/model.bin"
        assert counting_trainer.parse_checkpoint_step(model.read_bytes()) == self.n_steps
        assert self.status() == "succeeded"


def _checkpoint_step(path: Path) -> int:
    try:
        return counting_trainer.parse_checkpoint_step(path.read_bytes())
    except (OSError, ValueError, IndexError):
        return 0  # the checkpoint was removed, or does not exist yet
