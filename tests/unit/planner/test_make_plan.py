"""Whole plans: the published workflows, many jobs, secrets."""

import json
from pathlib import Path

import pytest

from packtrain import plan
from packtrain.planner.credentials.secret_sources import resolve_secrets, write_secrets
from packtrain.planner.make_plan import make_plan
from packtrain.spec.load import load_workflow_file
from tests.support.paths import TESTS_DIR

GOLDEN = TESTS_DIR / "golden"


@pytest.mark.parametrize("name", ["cifar10", "cifar10-resume"])
def test_golden_plans(name):
    loaded = load_workflow_file(GOLDEN / "workflows" / f"{name}.yaml")
    folder = plan.RunFolder(Path("/runs/r1"))
    result = make_plan(loaded.workflow, run="r1", engine="local", workflow_dir=Path("/somewhere"), run_folder=folder)
    assert result.diagnostics == ()
    assert plan.encode(result.plan) == json.loads((GOLDEN / "plans" / f"{name}.json").read_text())


def test_workflow_with_every_key(tmp_path):
    loaded = load_workflow_file(GOLDEN / "workflows" / "everything.yaml")
    assert [str(diagnostic) for diagnostic in loaded.diagnostics if diagnostic.is_error] == []
    folder = plan.RunFolder(tmp_path)
    result = make_plan(loaded.workflow, run="r1", engine="local", workflow_dir=GOLDEN / "workflows", run_folder=folder)
    assert result.diagnostics == ()
    assert len(result.plan.jobs) == 4
    path = tmp_path / "plan.json"
    plan.write_plan(result.plan, path)
    assert plan.read_plan(path) == result.plan
    assert "literal-secret" not in path.read_text()


def test_one_job_per_point(plan_workflow):
    result = plan_workflow("name: sweep\nmatrix: {lr: [1, 2]}\ncount: 2\n").plan
    assert (result.run, result.name, result.engine) == ("r1", "sweep", "local")
    assert [(each.id, each.point[0].value) for each in result.jobs] == [("0", "1"), ("1", "1"), ("2", "2"), ("3", "2")]


def test_expected_outputs(plan_job):
    result = plan_job(
        "expect: [{path: a.pt, torch: true}, {path: b.json, json: {acc: {min: 0.5}, test.loss: }},"
        " {path: c.json, json: {}}, {path: d.tar, archive: true}]\n"
    )
    assert result.expect == (
        plan.ExpectedOutput("a.pt", torch=True),
        plan.ExpectedOutput("b.json", json_bounds=(plan.Bound("acc", min=0.5), plan.Bound("test.loss"))),
        plan.ExpectedOutput("c.json", json_bounds=()),
        plan.ExpectedOutput("d.tar", archive=True),
    )


def test_other_job_settings(plan_job):
    result = plan_job(
        "env: [{key: A, value: '{job}'}]\n"
        "expect: [{path: 'm-{job}.pt', minSize: 1kB, maxCount: 2, command: check}]\n"
        "checkpoint: {path: ckpt.pt, minInterval: 10m}\n"
        "limits: {wallTime: 1h, disk: 1GB, maxAttempts: 5, grace: 10s}\n"
        "environment: {setup: module load x, path: [/opt/bin]}\n"
    )
    assert result.env == (plan.EnvVar("A", "0"),)
    assert result.expect == (plan.ExpectedOutput("m-0.pt", 1000, None, 1, 2, "check"),)
    assert result.checkpoint == plan.CheckpointConfig("ckpt.pt", 600.0)
    assert result.limits == plan.Limits(3600.0, 10**9, 5, 10.0)
    assert result.environment == plan.EnvironmentConfig(None, "module load x", ("/opt/bin",))


def test_engine_settings(plan_workflow):
    result = plan_workflow(
        "htcondor: {'+WantIt': true, requirements: 'x == 1'}\nslurm: {partition: gpu, exclusive: }\n"
    ).plan
    assert result.htcondor == (plan.EnvVar("+WantIt", "true"), plan.EnvVar("requirements", "x == 1"))
    assert result.slurm == (plan.EnvVar("partition", "gpu"), plan.EnvVar("exclusive", ""))


def test_matrix_value_outside_output(plan_workflow):
    result = plan_workflow("matrix: {m: [../../x]}\nexpect: ['{m}']\n")
    assert "expect[0].path of job 0: '../../x' should be a path below the folder" in str(result.diagnostics[0])


def test_retry_timeout_by_engine(plan_job):
    """Local runs fail sooner, because a user is waiting."""
    assert plan_job().retry_timeout_s < plan_job(engine="htcondor").retry_timeout_s


TOKEN = "input: {http: {url: 'https://h/x', token: '%s'}}\n"


def test_plan_has_only_names_of_secrets(plan_workflow):
    result = plan_workflow(TOKEN % "hunter2")
    assert result.plan.jobs[0].inputs[0].files[0].locations[0].token == plan.Secret("input-http-token")
    assert "hunter2" not in json.dumps(plan.encode(result.plan))
    assert "hunter2" not in repr(result)
    assert result.secrets["input-http-token"].is_literal


def test_secret_names(plan_workflow):
    """Equal texts share a secret; different texts with the same reference get different names."""
    result = plan_workflow(
        "env: [{key: A, value: '${env:X}'}, {key: B, value: '${env:X}'}, {key: C, value: 'a ${env:X}'}]\n"
    )
    assert [variable.value.name for variable in result.plan.jobs[0].env] == ["X", "X", "X.2"]


def test_resolve_secrets(plan_workflow, tmp_path):
    (tmp_path / "t").write_text("from-file\n")
    result = plan_workflow(TOKEN % "${env:A}:${file:t}")
    resolved = resolve_secrets(result.secrets, tmp_path, {"A": "from-env"})
    assert dict(resolved.values) == {"A": "from-env:from-file"}
    assert resolved.diagnostics == ()
    assert "from-env" not in repr(resolved)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("${env:NONE}", "needs the environment variable NONE, which is not set; export NONE=…"),
        ("${file:none}", "/none, which cannot be read (No such file or directory)"),
        ("${file:empty}", "/empty, which is empty"),
    ],
)
def test_missing_secrets(plan_workflow, tmp_path, reference, expected):
    (tmp_path / "empty").touch()
    (diagnostic,) = resolve_secrets(plan_workflow(TOKEN % reference).secrets, tmp_path, {}).diagnostics
    assert str(diagnostic).startswith("w.yaml:2:43: input.http.token needs the ")
    assert expected in str(diagnostic)


def test_secret_files(tmp_path):
    folder = tmp_path / "run" / "secrets"
    write_secrets(folder, {"A": "x"})
    write_secrets(folder, {"A": "y", "B": "z"})
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"A": "y", "B": "z"}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
