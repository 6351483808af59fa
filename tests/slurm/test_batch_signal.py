"""A script that saves and requeues itself when `--signal` announces its time limit."""

from __future__ import annotations

import pytest

from testbed.slurm import install
from tests.support.batch_workspace import BatchWorkspace

pytestmark = [
    pytest.mark.parametrize("session_cluster", [install.OLDEST], indirect=True),
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.timeout(600),
]
SCRIPT = """#!/bin/bash
#SBATCH --time=1 --signal=B:USR1@30 --output=out.log --open-mode=append
set -e
save() { echo saved > checkpoint; echo saving; scontrol requeue "$SLURM_JOB_ID"; sleep 20; }
trap save USR1
if [ -e checkpoint ]; then echo resumed; echo model > model.pt; exit 0; fi
sleep 100 & wait
"""


def test_script_that_requeues_itself(cluster, tmp_path):
    """Slurm announces the end of a job of one minute soon after its start."""
    tmp_path.chmod(0o777)
    workspace = BatchWorkspace(cluster, tmp_path)
    workspace.write_file(SCRIPT, "train.sbatch")
    workspace.run("run", "train.sbatch", "--on", "slurm", "--expect", "model.pt")
    lines = (workspace.folder / "out.log").read_text().splitlines()
    # bash reports the end of `sleep` if Slurm's SIGTERM reaches that first.
    assert [line for line in lines if line != "Terminated"] == ["saving", "resumed"]
    assert len(workspace.read_events("agent.started")) == 2
