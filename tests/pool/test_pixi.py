"""Pixi environments on a real pool: the packages come from a channel, the workspace and the list of packages from the
access point."""

from __future__ import annotations

import pytest

from packtrain.events import FAILURE_KINDS, kinds
from testbed.pixi.workspace import write_workspace

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-2"), pytest.mark.timeout(600)]

WORKFLOW = """
name: pixi
resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 500, gpus: 0}
environment: {pixi: {environment: cpu, files: [train.py]}}
expect: [facts.txt]
steps: [{name: train, run: {task: train, args: [--name, x], collect: [facts.txt]}}]
"""
SUBMIT = """
executable = job.sh
transfer_input_files = train.py
transfer_output_files = facts.txt
request_cpus = 1
request_memory = 500MB
request_disk = 1GB
log = user.log
queue
"""
SCRIPT = """#!/bin/sh
pixi install --locked -e cpu
EPOCHS=3 pixi run -e cpu python train.py "$@" && eval "$(pixi shell-hook -e cpu)"
"""
PROGRAM = """
import os, sys
import accel, wheel_tool
open("facts.txt", "w").write("|".join([accel.KIND, os.environ["EPOCHS"], *sys.argv[1:]]))
"""


@pytest.fixture
def locked(workspace, pixi_site, pixi_server):
    write_workspace(workspace.folder, pixi_site, pixi_server.url)
    (workspace.folder / "train.py").write_text(PROGRAM)
    return workspace


def test_workflow(locked):
    locked.write_file(WORKFLOW)
    locked.run("run", "workflow.yaml", "--on", "htcondor")
    assert (locked.run_folder() / "jobs/0/output/facts.txt").read_text() == "cpu_0|2|--name|x"


def test_node_without_driver(locked):
    """The pool matches a GPU whose ad promises CUDA 12.4, but the node has no driver: nothing is downloaded."""
    text = WORKFLOW.replace("environment: cpu", "environment: gpu").replace("gpus: 0", "gpus: 1")
    locked.write_file(text + "limits: {maxAttempts: 1}\n")
    out = locked.run("run", "workflow.yaml", "--on", "htcondor", exit_code=FAILURE_KINDS["gpu_unusable"].exit_code)
    assert "the Pixi environment needs a driver for CUDA 12.4 or newer, but it has no NVIDIA driver" in out
    assert "gpus_minimum_runtime    = 12.4" in (locked.run_folder() / "htcondor/0-1.sub").read_text()
    assert [event.data["stage"] for event in locked.read_events(kinds.STAGE_STARTED)] == ["probe", "sync", "clean"]


def test_submit_file_that_calls_pixi(locked):
    """The nodes have no Pixi: the agent's own small command is on the PATH of the job."""
    locked.write_file(SUBMIT, "job.sub")
    locked.write_file(SCRIPT, "job.sh").chmod(0o755)
    locked.run("run", "job.sub", "--on", "htcondor", "--pixi", "pixi.toml:cpu")
    assert (locked.folder / "facts.txt").read_text() == "cpu_0|3"
