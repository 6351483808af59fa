"""Every command in a process of its own: text, --json, --dry-run, bad input, exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from packtrain.cli.main import GROUP_BY_COMMAND
from tests.support.cli_runs import Workspace
from tests.support.paths import PROJECT_ROOT

pytestmark = pytest.mark.slow

SWEEP = """
name: sweep
resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}
matrix: {lr: [0.1, 0.01], seed: [1, 2]}
expect: [score.json]
steps:
  - name: score
    run: {command: 'echo "{\\"lr\\": {lr}}" > $PACKTRAIN_OUTPUT/score.json; echo lr={lr} seed={seed}'}
"""


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path)


def test_help_lists_every_command(workspace):
    out = workspace.run("--help")
    assert all(re.search(rf"^  {name} ", out, re.MULTILINE) for name in GROUP_BY_COMMAND)


@pytest.mark.parametrize("name", GROUP_BY_COMMAND)
def test_every_command_has_help_and_json(workspace, name):
    assert "--json" in workspace.run(name, "--help")


@pytest.mark.parametrize("name", ["init", "run", "cancel", "resume", "outputs"])
def test_dry_run_option(workspace, name):
    assert "--dry-run" in workspace.run(name, "--help")


def test_unknown_command_gets_a_hint(workspace):
    workspace.run("rnu", exit_code=2)
    assert "did you mean 'run'" in workspace.stderr


def test_schema(workspace):
    schema = json.loads(workspace.run("schema"))
    assert {"resources", "steps", "inputs", "matrix", "expect"} <= set(schema["properties"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(workspace, shell):
    assert "_PACKTRAIN_COMPLETE" in workspace.run("completion", shell)


def test_doctor(workspace):
    results = {result["name"]: result for result in workspace.run_json("doctor", exit_code=None)}
    assert results["packtrain"]["status"] == "ok"
    assert "CPUs" in results["local"]["detail"]


def test_init_check_plan_run(workspace):
    workspace.run("init", "minimal", "first")
    header = (workspace.folder / "first/workflow.yaml").read_text().splitlines()[0]
    schema = workspace.folder / "first" / header.partition("$schema=")[2]
    assert "properties" in json.loads(schema.read_text())
    assert "valid workflow of 1 job" in workspace.run("check", "first/workflow.yaml")
    assert "greeting.txt" in workspace.run("plan", "first/workflow.yaml")
    out = workspace.run("run", "first/workflow.yaml")
    assert "succeeded" in out
    assert "packtrain outputs" in out
    assert "greeting.txt" in workspace.run("outputs")


def test_init_refuses_to_overwrite(workspace):
    workspace.run("init", "minimal", "first")
    workspace.run("init", "minimal", "first", exit_code=2)
    assert "nothing was overwritten" in workspace.stderr
    workspace.run("init", "nonsense", exit_code=4)
    assert "cifar10-resnet" in workspace.stderr


def test_dry_run_writes_nothing(workspace):
    workspace.run("init", "minimal", "dry", "--dry-run")
    assert not (workspace.folder / "dry").exists()
    workspace.write_file(SWEEP)
    workspace.run("run", "workflow.yaml", "--dry-run")
    assert not (workspace.folder / ".packtrain").exists()


def test_check_reports_all_problems(workspace):
    workspace.write_file("name: x\nresorces: {}\nsteps:\n  - run: {comand: true}\n")
    workspace.run("check", "workflow.yaml", exit_code=2)
    assert "workflow.yaml:2:1: " in workspace.stderr
    assert "did you mean 'resources'" in workspace.stderr
    assert "workflow.yaml:4:" in workspace.stderr
    result = workspace.run_json("check", "workflow.yaml", exit_code=2)
    assert result["errors"] == len(result["diagnostics"]) >= 2
    workspace.run("run", "workflow.yaml", exit_code=2)
    workspace.run("check", "nowhere.yaml", exit_code=2)
    assert "nowhere.yaml" in workspace.stderr


def test_no_runs_yet(workspace):
    assert "no runs yet" in workspace.run("ps")
    for name in ("logs", "why", "cancel", "resume", "outputs"):
        workspace.run(name, exit_code=4)
        assert "no runs yet" in workspace.stderr
    assert workspace.run_json("why", exit_code=4)["exit_code"] == 4


def test_sweep(workspace):
    workspace.write_file(SWEEP)
    result = workspace.run_json("run", "workflow.yaml")
    assert {job["status"] for job in result["jobs"]} == {"succeeded"}
    assert len(result["jobs"]) == 4
    run = result["run"]
    assert "4/4" in workspace.run("ps")
    assert "lr=0.01" in workspace.run("ps", run)
    assert workspace.run("logs", f"{run}.3").strip() == "lr=0.01 seed=2"
    workspace.run("logs", run, exit_code=4)
    assert "4 jobs" in workspace.stderr
    workspace.run("logs", f"{run}.9", exit_code=4)
    assert {entry["name"] for entry in workspace.run_json("outputs")} == {"score.json"}
    workspace.run("outputs", run, "--copy", "home")
    assert json.loads((workspace.folder / "home/2/score.json").read_text()) == {"lr": 0.01}
    assert "succeeded" in workspace.run("why", run)
    assert "nothing to do, every job succeeded" in workspace.run("resume", run)
    assert "nothing to cancel" in workspace.run("cancel", run)


def test_failed_jobs_are_grouped_and_resumed(workspace):
    flag = workspace.folder / "fixed"
    workspace.write_file(SWEEP.replace("echo lr=", f"test -e {flag} || test {{seed}} = 1 || exit 7; echo lr="))
    workspace.run("run", "workflow.yaml", exit_code=10)
    out = workspace.run("why")
    assert "2 jobs" in out
    assert "exit code 7" in out
    flag.touch()
    result = workspace.run_json("resume")
    assert {job["status"] for job in result["jobs"]} == {"succeeded"}
    assert [len(job["executions"]) for job in result["jobs"]] == [1, 2, 1, 2]


def test_init_from_installed_wheel(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, PROJECT_ROOT],
        check=True,
    )
    (wheel,) = tmp_path.glob("packtrain-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "packtrain/store/schema.sql" in names
    assert "packtrain/agent/launch.sh" in names
    venv.create(tmp_path / "venv", system_site_packages=False)
    site = next((tmp_path / "venv/lib").glob("python*/site-packages"))
    zipfile.ZipFile(wheel).extractall(site)
    # Dependencies come from this environment, packtrain itself only from the wheel.
    dependencies = next(Path(p) for p in sys.path if p.endswith("site-packages"))
    code = (
        f"import sys; sys.path = [p for p in sys.path if 'src' not in p] + [{str(dependencies)!r}];"
        "import packtrain; assert 'venv/lib' in packtrain.__file__, packtrain.__file__;"
        "from packtrain.cli.main import main; main()"
    )
    workspace = Workspace(tmp_path)
    python = tmp_path / "venv/bin/python"
    for arguments in (["init", "cifar10-resnet"], ["init", "minimal"], ["run", "minimal/workflow.yaml"]):
        subprocess.run([python, "-c", code, *arguments], cwd=tmp_path, env=workspace.environment, check=True)
    assert (tmp_path / "cifar10-resnet/train.py").exists()
