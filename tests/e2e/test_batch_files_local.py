"""Batch scripts of Slurm on a machine without Slurm, and `packtrain convert`."""

from __future__ import annotations

import pytest

from tests.support.cli_runs import Workspace

pytestmark = pytest.mark.slow

SCRIPT = """#!/bin/bash
#SBATCH --job-name=sweep --array=2,5 --mem=64M
#SBATCH --output=logs/%x-%j-%a.out --error=logs/%a.err --chdir=work
set -eu
echo "task $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT, $SLURM_JOB_NAME, ${SLURM_SUBMIT_DIR##*/}, $NOTE"
echo warning >&2
[ "$NOTE" = fail ] || echo model > "models/$SLURM_ARRAY_TASK_ID.pt"
"""


@pytest.fixture
def workspace(tmp_path):
    workspace = Workspace(tmp_path / "project", NOTE="from my shell")
    (workspace.folder / "work/models").mkdir(parents=True)
    workspace.environment["PACKTRAIN_STORE"] = str(tmp_path / "store.db")
    workspace.write_file(SCRIPT, "job.sh")
    return workspace


def test_array(workspace):
    workspace.run("run", "job.sh", "--expect", "models/{task}.pt")
    for index in (2, 5):
        out = (workspace.folder / f"work/logs/sweep-local-{index}.out").read_text()
        assert out == f"task {index} of 2, sweep, project, from my shell\n"
        assert (workspace.folder / f"work/logs/{index}.err").read_text() == "warning\n"
        assert (workspace.folder / f"work/models/{index}.pt").read_text() == "model\n"
    assert (workspace.run_folder() / "jobs/1/output/models/5.pt").read_text() == "model\n"
    assert not (workspace.run_folder() / "secrets").exists()


def test_script_without_its_output(workspace):
    workspace.environment["NOTE"] = "fail"
    workspace.run("run", "job.sh", "--expect", "models/{task}.pt", exit_code=None)
    assert workspace.exit_code not in (0, 1, 2)
    assert "the expected output 'models/2.pt' is missing" in workspace.run("why")
    workspace.environment["NOTE"] = "from another shell"
    workspace.run("resume")
    assert (workspace.folder / "work/models/2.pt").exists(), "the resumed run has the variables of the new shell"


def test_script_that_is_edited_later(workspace):
    """The second attempt runs the script as it was when the run was created."""
    body = "set -e\nif [ -e again ]; then echo original > result; else touch again; sleep 100; fi\n"
    script = workspace.write_file(f"#!/bin/bash\n#SBATCH -o out.log\n{body}", "retry.sbatch")
    run = workspace.start("run", "retry.sbatch", "--expect", "result")
    workspace.wait_for((workspace.folder / "again").exists)
    script.write_text("#!/bin/bash\necho changed > result\n")
    workspace.kill_agent()
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0, out + err
    assert (workspace.folder / "result").read_text() == "original\n"


def test_existing_output(workspace):
    (workspace.folder / "work/models/2.pt").write_text("of an earlier run")
    workspace.run("check", "job.sh", "--expect", "models/2.pt")
    assert "models/2.pt exists already: a job that does not write it again also passes the check" in workspace.stderr


def test_converted_workflow(workspace):
    workspace.write_file(workspace.run("convert", "job.sh"), "job.yaml")
    workspace.run("check", "job.yaml")
    workspace.run("run", "job.yaml")
    assert (workspace.folder / "work/models/5.pt").exists()
    assert workspace.run_json("convert", "job.sh")["workflow"]["name"] == "sweep"


def test_other_engine_and_other_files(workspace):
    workspace.run("check", "job.sh", "--on", "htcondor", exit_code=2)
    assert "jobs on HTCondor do not get variables of your shell" in workspace.stderr
    workspace.write_file("#!/bin/sh\necho\n", "plain.sh")
    workspace.run("convert", "plain.sh", exit_code=2)
    assert "neither a submit file of HTCondor nor a script with #SBATCH lines" in workspace.stderr
