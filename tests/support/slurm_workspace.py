"""A user's folder on a login node of a test cluster, and trainings that run there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from testbed import condor
from testbed.slurm.cluster import Cluster
from tests.support.cli_runs import TIMEOUT_S, Workspace
from tests.support.programs import counting_trainer

TRAINING = """
name: counting
resources: {{tasks: 1, cpusPerTask: {cpus}, memPerCpu: 100, gpus: 0}}
checkpoint: {{path: ckpt.bin, minInterval: 1s}}
expect: [model.bin]
limits: {{grace: 5s, maxAttempts: 3{limits}}}
recovery: {{retryDelay: 1s}}
slurm: {options}
steps: [{{name: train, run: {{command: "echo run >> {runs}; exec {program}"}}}}]
"""


class SlurmWorkspace(Workspace):
    """A workspace whose commands run as an ordinary user of the cluster.

    Args:
        cluster: The cluster.
        folder: An empty folder, which the nodes see.
        settings: `slurm:` of the user's settings.
        environment: Further variables of the user.
    """

    def __init__(
        self, cluster: Cluster, folder: Path, settings: dict[str, Any] | None = None, **environment: str
    ) -> None:
        self.cluster, self.settings_path = cluster, folder / "config.yaml"
        super().__init__(folder, **{**cluster.env, "PACKTRAIN_CONFIG": str(self.settings_path), **environment})
        self.write_settings(settings or {})

    def write_settings(self, settings: dict[str, Any]) -> None:
        """Write the user's settings. Jobs of tests are short, so the queue is queried often."""
        self.settings_path.write_text(json.dumps({"slurm": {"queryInterval": "0.5s", **settings}}))

    def start(self, *arguments: object) -> subprocess.Popen:
        return subprocess.Popen(
            [*condor.user_prefix(), sys.executable, "-m", "packtrain", *map(str, arguments)],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def read_scripts(self) -> list[str]:
        """Return the batch scripts of the only run, oldest first."""
        paths = sorted(self.run_folder().glob("slurm/*.sh"), key=lambda path: path.stat().st_mtime)
        return [path.read_text() for path in paths]


class SlurmTraining:
    """One job that counts and saves each step, started by `packtrain run`.

    It does not get past step 20 before `open_gate`, so that a test has time for its faults.
    """

    N_STEPS, WAIT_AT = 40, 20

    def __init__(self, workspace: SlurmWorkspace, *, cpus: int = 1, limits: str = "", **options: str) -> None:
        self.workspace, self.gate = workspace, workspace.folder / "gate"
        program = (
            f"{sys.executable} -S {counting_trainer.__file__} --steps {self.N_STEPS} --pace 0.02"
            f" --wait-at {self.WAIT_AT} --gate {self.gate}"
        )
        text = TRAINING.format(
            cpus=cpus, limits=f", {limits}" if limits else "", options=json.dumps(options),
            runs=workspace.folder / "runs", program=program,
        )  # fmt: skip
        workspace.write_file(text)
        self.process = workspace.start("run", "workflow.yaml", "--on", "slurm")

    def wait_for_checkpoint(self, step: int = WAIT_AT) -> None:
        """Wait until an agent has uploaded a checkpoint of a step."""

        def is_saved() -> bool:
            assert self.process.poll() is None, self.process.communicate()
            return any(event.data["step"] >= step for event in self.workspace.read_events("checkpoint.saved"))

        self.workspace.wait_for(is_saved)

    def native_id(self) -> str:
        """Return the name of the newest attempt's task in Slurm."""
        output = self.workspace.cluster.run(["squeue", "-h", "-r", "-o", "%i %j"]).stdout
        name = self.workspace.run_folder().name
        (native_id,) = (line.split()[0] for line in output.splitlines() if name in line)
        return native_id

    def open_gate(self) -> None:
        self.gate.touch()

    def assert_success(self) -> dict[str, Any]:
        """Wait for the command, check the outputs, and return the job as `packtrain ps --json` shows it."""
        out, err = self.process.communicate(timeout=TIMEOUT_S) if self.process.poll() is None else ("", "")
        assert self.process.returncode == 0, f"exit {self.process.returncode}\n{out}\n{err}"
        model = self.workspace.run_folder() / "jobs/0/output/model.bin"
        assert counting_trainer.parse_checkpoint_step(model.read_bytes()) == self.N_STEPS
        (job,) = self.workspace.run_json("ps", self.workspace.run_folder().name)["jobs"]
        assert job["status"] == "succeeded"
        return job

    def start_steps(self) -> list[int]:
        """Return the step at which each execution of the program started."""
        logs = sorted(self.workspace.run_folder().glob("jobs/0/attempts/*/logs/train.out"))
        lines = [line for log in logs for line in log.read_text().splitlines()]
        return [int(line.rpartition(" ")[2]) for line in lines if line.startswith("starts at ")]

    def n_runs(self) -> int:
        """Return how often the program was started."""
        return len((self.workspace.folder / "runs").read_text().splitlines())
