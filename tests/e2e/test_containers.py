"""Tests of a workflow with a container: in a real Apptainer, or on the host with --no-container."""

from __future__ import annotations

import os

import pytest

from testbed import apptainer
from tests.support.cli_runs import Workspace

pytestmark = pytest.mark.slow

WORKFLOW = """
name: contained
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}}
env: [{{key: WHO, value: "${{env:DEMO_SECRET}}"}}]
expect: [where.txt]
steps:
  - name: check
    run:
      command: 'test -e /bin/busybox && W=inside || W=outside; echo "$W $WHO" | tee $PACKTRAIN_OUTPUT/where.txt'
      container: {{image: {image}}}
"""


def make_workspace(folder, path):
    workspace = Workspace(folder, DEMO_SECRET="hidden-3f9a", PATH=path)
    workspace.write_file(WORKFLOW.format(image=folder / "image.sif"))
    return workspace


def read_output(workspace):
    return (workspace.run_folder() / "jobs/0/output/where.txt").read_text()


def test_runs_inside_image(tmp_path):
    apptainer.build_sif(tmp_path / "image.sif")
    workspace = make_workspace(tmp_path, f"{apptainer.install_dir()}/usr/bin:{os.environ['PATH']}")
    workspace.run("run", "workflow.yaml")
    assert read_output(workspace) == "inside hidden-3f9a\n"
    assert "inside ***" in workspace.run("logs")


def test_missing_image(tmp_path):
    workspace = make_workspace(tmp_path, f"{apptainer.install_dir()}/usr/bin:{os.environ['PATH']}")
    workspace.run("run", "workflow.yaml", exit_code=51)
    assert "container_failed" in workspace.run("why")


def test_without_apptainer(tmp_path):
    workspace = make_workspace(tmp_path, os.environ["PATH"])
    assert "Apptainer is not installed" in workspace.run("check", "workflow.yaml", exit_code=None) + workspace.stderr
    workspace.run("run", "workflow.yaml", exit_code=2)
    assert "--no-container" in workspace.stderr
    workspace.run("run", "workflow.yaml", "--no-container")
    assert read_output(workspace) == "outside hidden-3f9a\n"
