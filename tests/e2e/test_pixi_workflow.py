"""Workflows that name a Pixi environment: from the lock file to commands that run in it."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import pytest

from testbed.http_server import HttpServer
from testbed.pixi.packages import build_wheel
from testbed.pixi.workspace import LOCK_VERSIONS, write_workspace
from tests.support.cli_runs import Workspace

pytestmark = pytest.mark.slow

WORKFLOW = """
name: pixi
resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}
environment: {pixi: {manifest: pixi.toml, environment: cpu}}
expect: [{path: facts.txt}]
steps:
- name: train
  run: {task: train, args: [--name, "a b'c"], collect: [facts.txt]}
- name: import
  run: {command: 'python -c "import accel, purelib, wheel_tool; print(accel.KIND)" && pixi run hello'}
"""
PROGRAM = """
import os, sys
from own_code import NAME
words = [NAME, os.environ["EPOCHS"], os.environ["FROM_MANIFEST"], os.environ["PIXI_ENVIRONMENT_NAME"], *sys.argv[1:]]
open("facts.txt", "w").write("|".join(words))
"""
EDITABLE = '[pypi-dependencies]\nown-code = { path = ".", editable = true }\n'


def read_log(workspace, name):
    return (workspace.attempt_folders()[0] / "logs" / f"{name}.out").read_text()


def add_editable_package(folder):
    """Make the workspace a Python package of its own, as `pixi init` and `pixi lock` do."""
    manifest, lock = folder / "pixi.toml", folder / "pixi.lock"
    manifest.write_text(manifest.read_text().replace("[pypi-dependencies]\n", EDITABLE))
    text = lock.read_text().replace("\npackages:\n", "\npackages:\n- pypi: ./\n  name: own-code\n  version: '1'\n", 1)
    lock.write_text(text.replace("      linux-64:\n", "      linux-64:\n      - pypi: ./\n"))
    (folder / "src/own_code").mkdir(parents=True)
    (folder / "src/own_code/__init__.py").write_text("NAME = 'own'\n")


@pytest.mark.parametrize("version", LOCK_VERSIONS)
def test_task_and_command_run_in_the_environment(tmp_path, pixi_site, pixi_server, version):
    workspace = Workspace(tmp_path)
    write_workspace(tmp_path, pixi_site, pixi_server.url, version)
    workspace.write_file(WORKFLOW)
    (tmp_path / "own_code.py").write_text("NAME = 'own'\n")
    (tmp_path / "train.py").write_text(PROGRAM)
    workspace.run("run", "workflow.yaml")
    assert read_log(workspace, "import") == "cpu_0\nhello\n"
    assert (workspace.run_folder() / "jobs/0/output/facts.txt").read_text() == "own|2|yes|cpu|--name|a b'c"


def test_editable_package_and_local_wheel_are_sent(tmp_path, pixi_site, pixi_server):
    """The workspace's code is on PYTHONPATH; a wheel of the user's disk has no URL that a worker could fetch."""
    workspace = Workspace(tmp_path)
    write_workspace(tmp_path, pixi_site, pixi_server.url)
    add_editable_package(tmp_path)
    build_wheel(tmp_path / "wheels", "own-wheel")
    lock = tmp_path / "pixi.lock"
    entry = "./wheels/own_wheel-1.0-py3-none-any.whl"
    text = lock.read_text().replace("      linux-64:\n", f"      linux-64:\n      - pypi: {entry}\n")
    lock.write_text(
        text.replace("\npackages:\n", f"\npackages:\n- pypi: {entry}\n  name: own-wheel\n  version: '1.0'\n", 1)
    )
    workspace.write_file(
        WORKFLOW.replace("ENV_MANIFEST", "pixi.toml").replace("import accel", "import own_wheel, accel")
    )
    (tmp_path / "train.py").write_text(PROGRAM)
    workspace.run("run", "workflow.yaml")
    assert (workspace.run_folder() / "jobs/0/output/facts.txt").read_text().startswith("own|2|yes|cpu")


def test_option_for_a_workflow_without_environment(tmp_path, pixi_site, pixi_server):
    workspace = Workspace(tmp_path)
    write_workspace(tmp_path / "env", pixi_site, pixi_server.url)
    command = 'python -c "import accel; print(accel.KIND)"'
    steps = f"[{{name: only, run: {{command: '{command}'}}}}]"
    workspace.write_file(f"resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}}\nsteps: {steps}\n")
    workspace.run("run", "workflow.yaml", "--pixi", "env/pixi.toml:cpu")
    assert read_log(workspace, "only") == "cpu_0\n"


def test_init_check_and_plan_of_a_workspace(tmp_path, pixi_site, pixi_server):
    workspace = Workspace(tmp_path)
    write_workspace(tmp_path, pixi_site, pixi_server.url)
    workspace.run("init")
    workspace.run("check", "workflow.yaml")
    summary = workspace.run_json("plan", "workflow.yaml")
    environment = summary["environment"]
    assert environment["requires"] == {"min_glibc": "2.28", "min_cuda": "12.4"}
    assert (environment["name"], environment["n_packages"], environment["n_unknown_sizes"]) == ("gpu", 12, 0)
    assert environment["sources"] == [f"{pixi_server.url}/channel", pixi_server.url]
    assert summary["resources"]["gpu"] == {"min_cuda": "12.4"}
    assert summary["disk_bytes"] >= environment["download_bytes"] + environment["installed_bytes"]


def test_store_is_filled_once_and_used_by_all_jobs(tmp_path, pixi_site):
    """Three jobs of two runs: the channel sends each package once."""
    with HttpServer(pixi_site) as server:
        workspace = Workspace(tmp_path)
        write_workspace(tmp_path, pixi_site, server.url)
        (tmp_path / "own_code.py").write_text("NAME = 'own'\n")
        (tmp_path / "train.py").write_text(PROGRAM)
        text = WORKFLOW.replace("environment: cpu", "environment: cpu, store: packages")
        workspace.write_file(text.replace("name: pixi", "name: pixi\ncount: 2"))
        workspace.run("run", "workflow.yaml", "--offline")
        workspace.write_file(text)
        workspace.run("run", "workflow.yaml", "--offline")
        paths = [request.path for request in server.requests if request.method == "GET"]
    (lock,) = {path.read_text() for path in tmp_path.glob(".packtrain/runs/*/environments/pixi-cpu/environment.json")}
    packages = json.loads(lock)["packages"]
    assert {path.name for path in (tmp_path / "packages").iterdir()} == {package["sha256"] for package in packages}
    # A larger package is fetched in several requests.
    small = [urlsplit(package["url"]).path for package in packages if package.get("size", 0) < 1 << 20]
    assert sorted(path for path in paths if "/python-" not in path) == sorted(small)


def test_batch_script_that_calls_pixi(tmp_path, pixi_site, pixi_server):
    """The script runs unchanged in the folder of the submission; the agent's own `pixi` is on the PATH."""
    workspace = Workspace(tmp_path)
    write_workspace(tmp_path, pixi_site, pixi_server.url)
    (tmp_path / "train.py").write_text("import accel; open('facts.txt', 'w').write(accel.KIND)\n")
    header = "#!/bin/bash\n#SBATCH --ntasks=1\n#SBATCH --mem=100M\n"
    workspace.write_file(f"{header}pixi install -e cpu\npixi run -e cpu python train.py\n", "job.sh")
    workspace.run("run", "job.sh", "--pixi", "pixi.toml:cpu")
    assert (tmp_path / "facts.txt").read_text() == "cpu_0"
