"""Whole plans: the published workflows, many jobs, secrets."""

import json
from pathlib import Path

import pytest

from packtrain import plan
from packtrain.planner.make_plan import make_plan
from packtrain.planner.secret_sources import resolve_secrets, write_secrets
from packtrain.spec.load import load_workflow_file
from tests.support.paths import TESTS_DIR

GOLDEN = TESTS_DIR / "golden"


@pytest.mark.parametrize("name", ["cifar10", "cifar10-resume"])
def test_the_published_workflows_have_their_golden_plans(name):
    found = load_workflow_file(GOLDEN / "workflows" / f"{name}.yaml")
    folder = plan.RunFolder(Path("/runs/r1"))
    made = make_plan(found.workflow, run="r1", engine="local", workflow_dir=Path("/somewhere"), run_folder=folder)
    assert made.diagnostics == ()
    assert plan.encode(made.plan) == json.loads((GOLDEN / "plans" / f"{name}.json").read_text())


def test_a_workflow_with_every_kind_of_thing_becomes_a_plan_that_survives_json(tmp_path):
    found = load_workflow_file(GOLDEN / "workflows" / "everything.yaml")
    assert [str(problem) for problem in found.diagnostics if problem.is_error] == []
    folder = plan.RunFolder(tmp_path)
    made = make_plan(found.workflow, run="r1", engine="local", workflow_dir=GOLDEN / "workflows", run_folder=folder)
    assert made.diagnostics == ()
    assert len(made.plan.jobs) == 4
    path = tmp_path / "plan.json"
    plan.write_plan(made.plan, path)
    assert plan.read_plan(path) == made.plan
    assert "literal-secret" not in path.read_text()


def test_a_plan_has_a_job_for_each_point(planned):
    made = planned("name: sweep\nmatrix: {lr: [1, 2]}\ncount: 2\n").plan
    assert (made.run, made.name, made.engine) == ("r1", "sweep", "local")
    assert [(job.id, job.point[0].value) for job in made.jobs] == [("0", "1"), ("1", "1"), ("2", "2"), ("3", "2")]


def test_checks_of_contents(job):
    made = job(
        "expect: [{path: a.pt, torch: true}, {path: b.json, json: {acc: {min: 0.5}, test.loss: }},"
        " {path: c.json, json: {}}, {path: d.tar, archive: true}]\n"
    )
    assert made.expect == (
        plan.ExpectedOutput("a.pt", torch=True),
        plan.ExpectedOutput("b.json", json_bounds=(plan.Bound("acc", min=0.5), plan.Bound("test.loss"))),
        plan.ExpectedOutput("c.json", json_bounds=()),
        plan.ExpectedOutput("d.tar", archive=True),
    )


def test_everything_else_of_a_job(job):
    made = job(
        "env: [{key: A, value: '{job}'}]\n"
        "expect: [{path: 'm-{job}.pt', minSize: 1kB, maxCount: 2, command: check}]\n"
        "checkpoint: {path: ckpt.pt, minInterval: 10m}\n"
        "limits: {wallTime: 1h, disk: 1GB, maxAttempts: 5, grace: 10s}\n"
        "environment: {setup: module load x, path: [/opt/bin]}\n"
    )
    assert made.env == (plan.EnvVar("A", "0"),)
    assert made.expect == (plan.ExpectedOutput("m-0.pt", 1000, None, 1, 2, "check"),)
    assert made.checkpoint == plan.CheckpointConfig("ckpt.pt", 600.0)
    assert made.limits == plan.Limits(3600.0, 10**9, 5, 10.0)
    assert made.environment == plan.EnvironmentConfig(None, "module load x", ("/opt/bin",))


def test_lines_for_engines_pass_through(planned):
    made = planned("htcondor: {'+WantIt': true, requirements: 'x == 1'}\nslurm: {partition: gpu, exclusive: }\n").plan
    assert made.htcondor == (plan.EnvVar("+WantIt", "true"), plan.EnvVar("requirements", "x == 1"))
    assert made.slurm == (plan.EnvVar("partition", "gpu"), plan.EnvVar("exclusive", ""))


def test_a_value_of_the_matrix_cannot_lead_out_of_the_output(planned):
    made = planned("matrix: {m: [../../x]}\nexpect: ['{m}']\n")
    assert "expect[0].path of job 0: '../../x' should be a path below the folder" in str(made.diagnostics[0])


def test_a_person_waits_for_local_jobs(job):
    assert job().retry_timeout_s < job(engine="htcondor").retry_timeout_s


TOKEN = "input: {http: {url: 'https://h/x', token: '%s'}}\n"


def test_a_plan_holds_names_of_secrets_only(planned):
    made = planned(TOKEN % "hunter2")
    assert made.plan.jobs[0].inputs[0].files[0].locations[0].token == plan.Secret("input-http-token")
    assert "hunter2" not in json.dumps(plan.encode(made.plan))
    assert "hunter2" not in repr(made)
    assert made.secrets["input-http-token"].is_literal


def test_secrets_of_one_text_are_one_and_of_one_name_are_two(planned):
    made = planned("env: [{key: A, value: '${env:X}'}, {key: B, value: '${env:X}'}, {key: C, value: 'a ${env:X}'}]\n")
    assert [variable.value.name for variable in made.plan.jobs[0].env] == ["X", "X", "X.2"]


def test_references_are_read_when_the_run_starts(planned, tmp_path):
    (tmp_path / "t").write_text("from-file\n")
    made = planned(TOKEN % "${env:A}:${file:t}")
    resolved = resolve_secrets(made.secrets, tmp_path, {"A": "from-env"})
    assert dict(resolved.values) == {"A": "from-env:from-file"}
    assert resolved.diagnostics == ()
    assert "from-env" not in repr(resolved)


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("${env:NONE}", "needs the environment variable NONE, which is not set; export NONE=…"),
        ("${file:none}", "/none, which cannot be read (No such file or directory)"),
        ("${file:empty}", "/empty, which is empty"),
    ],
)
def test_a_secret_that_is_not_there_is_named_with_its_place(planned, tmp_path, reference, says):
    (tmp_path / "empty").touch()
    (problem,) = resolve_secrets(planned(TOKEN % reference).secrets, tmp_path, {}).diagnostics
    assert str(problem).startswith("w.yaml:2:43: input.http.token needs the ")
    assert says in str(problem)


def test_secrets_are_files_for_their_owner_only(tmp_path):
    folder = tmp_path / "run" / "secrets"
    write_secrets(folder, {"A": "x"})
    write_secrets(folder, {"A": "y", "B": "z"})
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"A": "y", "B": "z"}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
