"""Every command as a person uses it: text, --json, --dry-run, bad input, exit codes."""

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
def desk(tmp_path):
    return Workspace(tmp_path)


def test_help_names_every_command(desk):
    out = desk.run("--help")
    assert all(re.search(rf"^  {name} ", out, re.MULTILINE) for name in GROUP_BY_COMMAND)


@pytest.mark.parametrize("name", GROUP_BY_COMMAND)
def test_every_command_has_help_and_json(desk, name):
    assert "--json" in desk.run(name, "--help")


@pytest.mark.parametrize("name", ["init", "run", "cancel", "resume", "outputs"])
def test_commands_that_act_have_a_dry_run(desk, name):
    assert "--dry-run" in desk.run(name, "--help")


def test_unknown_command_gets_a_hint(desk):
    desk.run("rnu", code=2)
    assert "did you mean 'run'" in desk.stderr


def test_schema_is_a_json_schema_that_knows_the_keys(desk):
    schema = json.loads(desk.run("schema"))
    assert {"resources", "steps", "inputs", "matrix", "expect"} <= set(schema["properties"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(desk, shell):
    assert "_PACKTRAIN_COMPLETE" in desk.run("completion", shell)


def test_doctor(desk):
    found = {finding["what"]: finding for finding in desk.run_json("doctor", code=None)}
    assert found["packtrain"]["status"] == "ok"
    assert "CPUs" in found["local"]["seen"]


def test_init_check_plan_run(desk):
    desk.run("init", "minimal", "first")
    header = (desk.folder / "first/workflow.yaml").read_text().splitlines()[0]
    schema = desk.folder / "first" / header.partition("$schema=")[2]
    assert "properties" in json.loads(schema.read_text())
    assert "valid workflow of 1 job" in desk.run("check", "first/workflow.yaml")
    assert "greeting.txt" in desk.run("plan", "first/workflow.yaml")
    out = desk.run("run", "first/workflow.yaml")
    assert "succeeded" in out
    assert "packtrain outputs" in out
    assert "greeting.txt" in desk.run("outputs")


def test_init_refuses_to_overwrite(desk):
    desk.run("init", "minimal", "first")
    desk.run("init", "minimal", "first", code=2)
    assert "nothing was overwritten" in desk.stderr
    desk.run("init", "nonsense", code=4)
    assert "cifar10-resnet" in desk.stderr


def test_nothing_is_done_in_a_dry_run(desk):
    desk.run("init", "minimal", "dry", "--dry-run")
    assert not (desk.folder / "dry").exists()
    desk.write_file(SWEEP)
    desk.run("run", "workflow.yaml", "--dry-run")
    assert not (desk.folder / ".packtrain").exists()


def test_bad_file_all_problems_at_once(desk):
    desk.write_file("name: x\nresorces: {}\nsteps:\n  - run: {comand: true}\n")
    desk.run("check", "workflow.yaml", code=2)
    assert "workflow.yaml:2:1: " in desk.stderr
    assert "did you mean 'resources'" in desk.stderr
    assert "workflow.yaml:4:" in desk.stderr
    found = desk.run_json("check", "workflow.yaml", code=2)
    assert found["errors"] == len(found["problems"]) >= 2
    desk.run("run", "workflow.yaml", code=2)
    desk.run("check", "nowhere.yaml", code=2)
    assert "nowhere.yaml" in desk.stderr


def test_no_runs_yet(desk):
    assert "no runs yet" in desk.run("ps")
    for name in ("logs", "why", "cancel", "resume", "outputs"):
        desk.run(name, code=4)
        assert "no runs yet" in desk.stderr
    assert desk.run_json("why", code=4)["exit_code"] == 4


def test_sweep_from_start_to_outputs(desk):
    desk.write_file(SWEEP)
    result = desk.run_json("run", "workflow.yaml")
    assert {job["status"] for job in result["jobs"]} == {"succeeded"}
    assert len(result["jobs"]) == 4
    run = result["run"]
    assert "4/4" in desk.run("ps")
    assert "lr=0.01" in desk.run("ps", run)
    assert desk.run("logs", f"{run}.3").strip() == "lr=0.01 seed=2"
    desk.run("logs", run, code=4)
    assert "4 jobs" in desk.stderr
    desk.run("logs", f"{run}.9", code=4)
    assert {entry["name"] for entry in desk.run_json("outputs")} == {"score.json"}
    desk.run("outputs", run, "--copy", "home")
    assert json.loads((desk.folder / "home/2/score.json").read_text()) == {"lr": 0.01}
    assert "succeeded" in desk.run("why", run)
    assert "nothing left to do" in desk.run("resume", run)
    assert "nothing to cancel" in desk.run("cancel", run)


def test_failed_jobs_of_a_sweep_are_told_once_and_resumed(desk):
    flag = desk.folder / "mended"
    desk.write_file(SWEEP.replace("echo lr=", f"test -e {flag} || test {{seed}} = 1 || exit 7; echo lr="))
    desk.run("run", "workflow.yaml", code=10)
    out = desk.run("why")
    assert "2 jobs" in out
    assert "exit code 7" in out
    flag.touch()
    result = desk.run_json("resume")
    assert {job["status"] for job in result["jobs"]} == {"succeeded"}
    assert [len(job["attempts"]) for job in result["jobs"]] == [1, 2, 1, 2]


def test_init_works_from_an_installed_wheel(tmp_path):
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
    # The dependencies come from this environment; packtrain itself only from the wheel.
    dependencies = next(Path(p) for p in sys.path if p.endswith("site-packages"))
    code = (
        f"import sys; sys.path = [p for p in sys.path if 'src' not in p] + [{str(dependencies)!r}];"
        "import packtrain; assert 'venv/lib' in packtrain.__file__, packtrain.__file__;"
        "from packtrain.cli.main import main; main()"
    )
    desk = Workspace(tmp_path)
    python = tmp_path / "venv/bin/python"
    for arguments in (["init", "cifar10-resnet"], ["init", "minimal"], ["run", "minimal/workflow.yaml"]):
        subprocess.run([python, "-c", code, *arguments], cwd=tmp_path, env=desk.environment, check=True)
    assert (tmp_path / "cifar10-resnet/train.py").exists()
