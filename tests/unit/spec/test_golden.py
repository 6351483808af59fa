"""DeepSquare's published workflows are valid as they stand, and mean what they meant there."""

import pytest

from packtrain.spec.load import load_workflow_file
from tests.support.paths import TESTS_DIR

WORKFLOWS = TESTS_DIR / "golden" / "workflows"


@pytest.mark.parametrize("name", ["cifar10", "cifar10-resume"])
def test_published_workflows_are_valid_but_for_the_secret_in_clear(name):
    found = load_workflow_file(WORKFLOWS / f"{name}.yaml")
    assert found.workflow is not None
    assert {problem.severity for problem in found.diagnostics} == {"warning"}
    assert all("secretAccessKey is a secret in plain text" in problem.message for problem in found.diagnostics)


def test_the_training_workflow():
    made = load_workflow_file(WORKFLOWS / "cifar10.yaml").workflow
    assert made.input.http.url == "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    assert (made.output.s3.bucket_url, made.output.s3.path) == ("s3://cifar10", "/")
    assert made.continuous_output_sync
    assert made.steps[0].resources.gpus_per_task == 2
    assert made.steps[0].run.work_dir == "/app"


def test_a_command_over_several_lines_is_one_command():
    made = load_workflow_file(WORKFLOWS / "cifar10-resume.yaml").workflow
    assert [step.name for step in made.steps] == ["download dataset", "train"]
    assert "-o $STORAGE_PATH/cifar-10-python.tar.gz; tar -C" in made.steps[0].run.command
