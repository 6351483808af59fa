"""Fixtures that make plans from workflow texts."""

import os

import pytest

from packtrain.plan import RunFolder
from packtrain.planner.make_plan import make_plan
from packtrain.spec.load import load_workflow_text

RESOURCES_YAML = "resources: {tasks: 1, cpusPerTask: 2, memPerCpu: 100, gpus: 1}\n"
STEPS_YAML = "steps: [{run: {command: 'true'}}]\n"


@pytest.fixture(autouse=True)
def no_aws_credentials(monkeypatch):
    """Hide the credentials of the user who runs the tests."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")


@pytest.fixture
def plan_workflow(tmp_path):
    """Return a function that makes a plan."""

    def make(text="", *, steps=STEPS_YAML, resources=RESOURCES_YAML, engine="local", **options):
        loaded = load_workflow_text(resources + text + steps, "w.yaml")
        assert loaded.workflow is not None, [str(diagnostic) for diagnostic in loaded.diagnostics]
        folder = RunFolder.for_run(tmp_path, "r1")
        return make_plan(loaded.workflow, run="r1", engine=engine, workflow_dir=tmp_path, run_folder=folder, **options)

    return make


@pytest.fixture
def plan_job(plan_workflow):
    """Return the first job of a plan that has no errors."""

    def make(text="", **options):
        result = plan_workflow(text, **options)
        assert [str(diagnostic) for diagnostic in result.diagnostics if diagnostic.is_error] == []
        return result.plan.jobs[0]

    return make
