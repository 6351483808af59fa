"""A user's folder on a login node of a test cluster, for batch scripts."""

from __future__ import annotations

import sys
from pathlib import Path

from testbed.slurm.cluster import Cluster
from tests.support.slurm_workspace import SlurmWorkspace

_FAKE_NVIDIA_SMI = """\
#!/bin/sh
# One line for each GPU that Slurm gave the job.
for gpu in $(echo "$CUDA_VISIBLE_DEVICES" | tr , ' '); do
    echo "$gpu, GPU-$gpu, NVIDIA A100, 40960, 550.54.14, 8.0"
done
"""


class BatchWorkspace(SlurmWorkspace):
    """A workspace with programs in the user's PATH. There are GPUs in name only, and an nvidia-smi."""

    def __init__(self, cluster: Cluster, folder: Path, **environment: str) -> None:
        path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{cluster.env['PATH']}"
        super().__init__(cluster, folder, **{"PATH": path, "HOME": str(folder), **environment})
        (folder / "bin").mkdir()
        self.write_file(_FAKE_NVIDIA_SMI, "bin/nvidia-smi").chmod(0o755)

    def slurm(self, *argv: object, check: bool = True) -> str:
        """Run a command of Slurm as the user in this folder, and return its output and messages."""
        result = self.cluster.run(argv, check=check, cwd=self.folder, env=self.environment)
        return result.stdout + result.stderr
