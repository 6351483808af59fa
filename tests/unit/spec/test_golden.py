"""DeepSquare's published workflows load unchanged and keep their meaning."""

import pytest

from packtrain.spec.load import load_workflow_file
from tests.support.paths import TESTS_DIR

WORKFLOWS = TESTS_DIR / "golden" / "workflows"


@pytest.mark.parametrize("name", ["cifar10", "cifar10-resume"])
def test_published_workflows_load(name):
    """The only diagnostics are warnings about the secret in plain text."""
    result = load_workflow_file(WORKFLOWS / f"{name}.yaml")
    assert result.workflow is not None
    assert {diagnostic.severity for diagnostic in result.diagnostics} == {"warning"}
    assert all("secretAccessKey is a secret in plain text" in diagnostic.message for diagnostic in result.diagnostics)


def test_training_workflow():
    workflow = load_workflow_file(WORKFLOWS / "cifar10.yaml").workflow
    assert workflow.input.http.url == "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    assert (workflow.output.s3.bucket_url, workflow.output.s3.path) == ("s3://cifar10", "/")
    assert workflow.continuous_output_sync
    assert workflow.steps[0].resources.gpus_per_task == 2
    assert workflow.steps[0].run.work_dir == "/app"


def test_multi_line_command():
    workflow = load_workflow_file(WORKFLOWS / "cifar10-resume.yaml").workflow
    assert [step.name for step in workflow.steps] == ["download dataset", "train"]
    assert "-o $STORAGE_PATH/cifar-10-python.tar.gz; tar -C" in workflow.steps[0].run.command
