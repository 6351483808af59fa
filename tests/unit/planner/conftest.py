"""Plans from workflow texts."""

import os

import pytest

from packtrain.plan import RunFolder
from packtrain.planner.make_plan import make_plan
from packtrain.spec.load import load_workflow_text

RESOURCES_YAML = "resources: {tasks: 1, cpusPerTask: 2, memPerCpu: 100, gpus: 1}\n"
STEPS_YAML = "steps: [{run: {command: 'true'}}]\n"


@pytest.fixture(autouse=True)
def no_aws_credentials(monkeypatch):
    """Whoever runs the tests may have some."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")


@pytest.fixture
def planned(tmp_path):
    def make(text="", *, steps=STEPS_YAML, resources=RESOURCES_YAML, engine="local", **options):
        found = load_workflow_text(resources + text + steps, "w.yaml")
        assert found.workflow is not None, [str(problem) for problem in found.diagnostics]
        folder = RunFolder.for_run(tmp_path, "r1")
        return make_plan(found.workflow, run="r1", engine=engine, workflow_dir=tmp_path, run_folder=folder, **options)

    return make


@pytest.fixture
def job(planned):
    """The first job of a plan without errors."""

    def make(text="", **options):
        made = planned(text, **options)
        assert [str(problem) for problem in made.diagnostics if problem.is_error] == []
        return made.plan.jobs[0]

    return make
