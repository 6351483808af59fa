"""HTCondor submit files on this machine: `packtrain run job.sub`, and `packtrain convert`."""

from __future__ import annotations

import os

import pytest

from testbed import apptainer
from testbed.http_server import HttpServer, ResponseFault
from tests.support import self_checkpointing
from tests.support.cli_runs import Workspace

pytestmark = pytest.mark.slow

WRAPPER = """#!/bin/bash
mkdir data
tar -xf words.tar -C data
python3 train.py "$@" || echo "training failed"
rm -rf data words.tar
"""
TRAIN = """
import os, pathlib, sys
words = pathlib.Path("data/words.txt").read_text()
print("trained with", sys.argv[1:], os.environ["NOTE"], os.environ["_CONDOR_SCRATCH_DIR"] == os.getcwd())
pathlib.Path("model.txt").write_text(words + " ".join(sys.argv[1:]))
"""
SUBMIT = """# like the published submit files
+JOB_Site = "$$(GLIDEIN_Site:Unknown)"
log    = job_$(Cluster).log
error  = job_$(Cluster)_$(Process).err
output = job_$(Cluster)_$(Process).out
executable = run.sh
arguments  = "--epochs 5 --note 'a b' --seed $(Process)"
environment = "NOTE='x y'"
transfer_input_files = train.py, \\
    {url}/words.tar
should_transfer_files = YES
when_to_transfer_output = ON_EXIT
request_memory = 64MB
{more}
queue {count}
"""


@pytest.fixture
def served(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "words.txt").write_text("hello ")
    os.system(f"tar -C {folder} -cf {folder}/words.tar words.txt")
    return folder


@pytest.fixture
def workspace(tmp_path):
    workspace = Workspace(tmp_path)
    workspace.write_file(WRAPPER, "run.sh")
    workspace.write_file(TRAIN, "train.py")
    return workspace


def write_submit_file(workspace, origin, more="", count=""):
    workspace.write_file(SUBMIT.format(url=origin.url, more=more, count=count), "job.sub")


def test_one_job(workspace, served):
    with HttpServer(served, faults=[ResponseFault(status=503)]) as origin:
        write_submit_file(workspace, origin)
        workspace.run("run", "job.sub", "--expect", "model.txt")
    assert (workspace.folder / "model.txt").read_text() == "hello --epochs 5 --note a b --seed 0"
    run = workspace.run_folder().name
    stdout = (workspace.folder / f"job_{run}_0.out").read_text()
    assert stdout == "trained with ['--epochs', '5', '--note', 'a b', '--seed', '0'] x y True\n"
    assert (workspace.folder / f"job_{run}_0.err").read_text() == ""
    assert (workspace.folder / "run.sh").read_text() == WRAPPER
    assert "trained with" in workspace.run("logs")


def test_jobs_have_their_own_output_folders(workspace, served):
    with HttpServer(served) as origin:
        write_submit_file(workspace, origin, count="3")
        workspace.run("run", "job.sub", "--offline")
    assert "3 jobs would overwrite each other's outputs in ." in workspace.stderr
    assert "run.sh:5:1: warning: the exit code is that of `rm -rf data words.tar`" in workspace.stderr
    models = [(workspace.run_folder() / f"jobs/{n}/output/model.txt").read_text() for n in range(3)]
    assert models == [f"hello --epochs 5 --note a b --seed {n}" for n in range(3)]
    assert not (workspace.folder / "model.txt").exists()


def test_expect_finds_masked_failure(workspace, served):
    workspace.write_file("raise SystemExit('out of luck')", "train.py")
    with HttpServer(served) as origin:
        write_submit_file(workspace, origin, more="max_retries = 0")
        workspace.run("run", "job.sub", "--expect", "model.txt", exit_code=None)
    assert workspace.exit_code not in (0, 1, 2)
    assert "the expected output 'model.txt' is missing" in workspace.run("why")
    assert not (workspace.folder / "model.txt").exists()


def test_remapped_outputs(workspace, served):
    remap = 'transfer_output_files = model.txt\ntransfer_output_remaps = "model.txt = models/m-$(Process).txt"'
    with HttpServer(served) as origin:
        write_submit_file(
            workspace, origin, more=remap + "\ninitialdir = runs/$(Process)\ntransfer_executable = true", count="2"
        )
        (workspace.folder / "runs/0").mkdir(parents=True)
        (workspace.folder / "runs/1").mkdir(parents=True)
        for number in (0, 1):
            (workspace.folder / f"runs/{number}/train.py").write_text(TRAIN)
        workspace.run("run", "job.sub")
    assert (workspace.folder / "runs/1/models/m-1.txt").read_text().endswith("--seed 1")


def test_unsupported_commands(workspace, served):
    with HttpServer(served) as origin:
        write_submit_file(workspace, origin, more="checkpoint_destination = osdf:///x\nsuccess_exit_code = 4")
        workspace.run("run", "job.sub", exit_code=2)
        assert origin.requests == []
    assert "job.sub:14:1: checkpoint_destination is not supported" in workspace.stderr
    assert "job.sub:15:1: success_exit_code is not supported" in workspace.stderr
    assert not (workspace.folder / ".packtrain").exists()


def test_missing_local_file(workspace, served):
    (workspace.folder / "train.py").unlink()
    with HttpServer(served) as origin:
        write_submit_file(workspace, origin)
        workspace.run("check", "job.sub", exit_code=2)
    assert "job.sub:9:1: " in workspace.stderr
    assert "train.py does not exist" in workspace.stderr


def test_convert(workspace, served):
    with HttpServer(served) as origin:
        write_submit_file(workspace, origin)
        workspace.write_file(workspace.run("convert", "job.sub", "--expect", "model.txt"), "job.yaml")
        workspace.run("check", "job.yaml")
        workspace.run("run", "job.yaml")
    assert (workspace.folder / "model.txt").read_text().startswith("hello ")
    data = workspace.run_json("convert", "job.sub")
    assert data["workflow"]["name"] == "job"
    assert any("log is ignored" in diagnostic["message"] for diagnostic in data["diagnostics"])


def test_convert_invalid_file(workspace):
    workspace.write_file("executable = x\nuniverse = grid\nqueue\n", "job.sub")
    workspace.run("convert", "job.sub", exit_code=2)
    assert "job.sub:2:1: the universe grid is not supported" in workspace.stderr
    assert workspace.run_json("convert", "none.sub", exit_code=2)["workflow"] == {}


def test_in_a_container(tmp_path):
    apptainer.build_sif(tmp_path / "image.sif")
    workspace = Workspace(tmp_path, PATH=f"{apptainer.install_dir()}/usr/bin:{os.environ['PATH']}")
    workspace.write_file("#!/bin/sh\ntest -e /bin/busybox && cat numbers.txt > inside.txt\n", "run.sh")
    workspace.write_file("1 2 3\n", "numbers.txt")
    workspace.write_file(
        'universe = vanilla\n+SingularityImage = "image.sif"\nexecutable = run.sh\n'
        "transfer_input_files = numbers.txt\ntransfer_output_files = inside.txt\nqueue\n",
        "job.sub",
    )
    workspace.run("run", "job.sub")
    assert (workspace.folder / "inside.txt").read_text() == "1 2 3\n"


def count_starts(workspace, name="example.out"):
    lines = (workspace.folder / name).read_text().splitlines()
    return [line for line in lines if line.startswith("Starting")]


def test_self_checkpointing_example(workspace):
    """HTCondor's own example: exit code 85 means “saved, continue”, and costs no attempt."""
    workspace.write_file(self_checkpointing.PROGRAM.replace("PACE", "0"), "example.py")
    workspace.write_file(self_checkpointing.SUBMIT + "", "job.sub")
    workspace.run("run", "job.sub")
    assert count_starts(workspace) == self_checkpointing.STARTS
    assert (workspace.folder / "example.out").read_text().endswith("Computation complete\n")
    restored = [event.data["path"] for event in workspace.read_events("checkpoint.restored")]
    assert restored == ["example.checkpoint"] * 3
    state = workspace.run_json("ps", workspace.run_folder().name)
    assert "failed" not in str(state["jobs"])


def test_other_exit_code_and_all_new_files(workspace):
    """Without a list, every new file is the checkpoint, also an empty one; unchanged inputs are not."""
    workspace.write_file("0\n", "numbers.txt")
    workspace.write_file(
        "#!/bin/sh\ntest -e mark && { echo resumed with $(cat state); exit 0; }\n"
        "echo 1 > state; touch mark; mkdir sub; exit 77\n",
        "run.sh",
    )
    workspace.write_file(
        "CheckpointExitCode = 77\nexecutable = run.sh\noutput = out.txt\ntransfer_input_files = numbers.txt\nqueue\n",
        "job.sub",
    )
    workspace.run("run", "job.sub")
    assert (workspace.folder / "out.txt").read_text() == "resumed with 1\n"
    (saved,) = workspace.read_events("checkpoint.saved")
    assert saved.data["bytes"] == 2, "state and the empty mark, but no input"


def test_exit_85_without_a_checkpoint_fails(workspace):
    workspace.write_file("#!/bin/sh\nexit 85\n", "run.sh")
    workspace.write_file(
        "checkpoint_exit_code = 85\ntransfer_checkpoint_files = state\nexecutable = run.sh\nqueue\n", "job.sub"
    )
    workspace.run("run", "job.sub", exit_code=None)
    assert workspace.exit_code not in (0, 1, 2)
    assert "no checkpoint was saved" in workspace.run("why")


def test_url_for_the_plugins_of_a_pool(workspace):
    """Only HTCondor can fetch it, unless it is a file of this machine."""
    workspace.write_file("#!/bin/sh\ncat data.txt > copy.txt\n", "run.sh")
    submit = "executable = run.sh\ntransfer_input_files = file://{}\nqueue\n"
    workspace.write_file(submit.format("/no/where/data.txt"), "job.sub")
    workspace.run("check", "job.sub", exit_code=2)
    assert "job.sub:2:1: file:///no/where/data.txt can be fetched only by the transfer plugins" in workspace.stderr
    (workspace.folder / "staging").mkdir()
    (workspace.folder / "staging" / "data.txt").write_text("staged\n")
    workspace.write_file(submit.format(workspace.folder / "staging/data.txt"), "job.sub")
    workspace.run("run", "job.sub")
    assert (workspace.folder / "copy.txt").read_text() == "staged\n"
    workspace.write_file("container_image = file:///no/where/image.sif\nexecutable = run.sh\nqueue\n", "job.sub")
    workspace.run("check", "job.sub", exit_code=2)
    assert "file:///no/where/image.sif does not exist on this machine" in workspace.stderr
