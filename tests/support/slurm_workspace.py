"""A user's folder on the login node of a test cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from testbed import condor
from testbed.slurm.cluster import Cluster
from tests.support.cli_runs import Workspace

_SETTINGS = "slurm: {queryInterval: 1s}\n"
_FAKE_NVIDIA_SMI = """\
#!/bin/sh
# One line for each GPU that Slurm gave the job.
for gpu in $(echo "$CUDA_VISIBLE_DEVICES" | tr , ' '); do
    echo "$gpu, GPU-$gpu, NVIDIA A100, 40960, 550.54.14, 8.0"
done
"""


class SlurmWorkspace(Workspace):
    """A workspace whose commands run as a user of the cluster. There are GPUs in name only, and an nvidia-smi."""

    def __init__(self, cluster: Cluster, folder: Path, **environment: str) -> None:
        config = folder / "config.yaml"
        config.write_text(_SETTINGS, encoding="utf-8")
        programs = folder / "bin"
        programs.mkdir()
        path = f"{programs}:{Path(sys.executable).parent}:{cluster.env['PATH']}"
        variables = {
            "SLURM_CONF": cluster.env["SLURM_CONF"], "PATH": path, "PACKTRAIN_CONFIG": str(config), "HOME": str(folder)
        }  # fmt: skip
        super().__init__(folder, **{**variables, **environment})
        self.cluster = cluster
        self.write_program(_FAKE_NVIDIA_SMI, "nvidia-smi")

    def start(self, *arguments: object) -> subprocess.Popen:
        return subprocess.Popen(
            [*condor.user_prefix(), sys.executable, "-m", "packtrain", *map(str, arguments)],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def write_program(self, text: str, name: str) -> None:
        """Write a program that is in the user's PATH."""
        self.write_file(text, f"bin/{name}").chmod(0o755)

    def slurm(self, *argv: object, check: bool = True) -> str:
        """Run a command of Slurm as the user in this folder, and return its output and messages."""
        result = self.cluster.run(argv, check=check, cwd=self.folder, env=self.environment)
        return result.stdout + result.stderr
