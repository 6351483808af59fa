"""A workflow with a container: in a real Apptainer where there is one, on the host with --no-container."""

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
  - name: look
    run:
      command: 'test -e /bin/busybox && W=inside || W=outside; echo "$W $WHO" | tee $PACKTRAIN_OUTPUT/where.txt'
      container: {{image: {image}}}
"""


def desk_with(folder, path):
    desk = Workspace(folder, DEMO_SECRET="hidden-3f9a", PATH=path)
    desk.write_file(WORKFLOW.format(image=folder / "image.sif"))
    return desk


def where(desk):
    return (desk.run_folder() / "jobs/0/output/where.txt").read_text()


def test_it_runs_inside_the_image(tmp_path):
    apptainer.build_sif(tmp_path / "image.sif")
    desk = desk_with(tmp_path, f"{apptainer.install_dir()}/usr/bin:{os.environ['PATH']}")
    desk.run("run", "workflow.yaml")
    assert where(desk) == "inside hidden-3f9a\n"
    assert "inside ***" in desk.run("logs")


def test_an_image_that_is_not_there(tmp_path):
    desk = desk_with(tmp_path, f"{apptainer.install_dir()}/usr/bin:{os.environ['PATH']}")
    desk.run("run", "workflow.yaml", exit_code=51)
    assert "container_failed" in desk.run("why")


def test_without_apptainer_check_says_so_and_the_host_will_do(tmp_path):
    desk = desk_with(tmp_path, os.environ["PATH"])
    assert "Apptainer is not installed" in desk.run("check", "workflow.yaml", exit_code=None) + desk.stderr
    desk.run("run", "workflow.yaml", exit_code=2)
    assert "--no-container" in desk.stderr
    desk.run("run", "workflow.yaml", "--no-container")
    assert where(desk) == "outside hidden-3f9a\n"
