"""The workflow file that `packtrain init` writes for a Pixi workspace."""

import json

import pytest

from packtrain.pixi_workspace.errors import PixiError
from packtrain.spec.load import load_workflow_text
from packtrain.submission import make_pixi_workflow
from tests.support.pixi_locks import conda, lock_text, write_files

MANIFEST = """
[tasks]
test = "pytest"
"fit:all" = "python fit.py"
_hidden = "true"
server = "serve & wait"
[environments]
gpu = ["gpu"]
docs = ["docs"]
[feature.docs.dependencies]
sphinx = "*"
"""


def write_workspace(folder, manifest=MANIFEST, gpu=(), environments=("default", "gpu", "docs")):
    lock = json.loads(lock_text({"linux-64": [*gpu]}))
    packages = lock["environments"]["default"]["packages"]
    lock["environments"] = {
        name: {"channels": [], "packages": packages if name == "gpu" else {"linux-64": []}} for name in environments
    }
    return write_files(folder, manifest, json.dumps(lock))


def load(text):
    loaded = load_workflow_text(text, "workflow.yaml")
    assert loaded.workflow is not None, [str(diagnostic) for diagnostic in loaded.diagnostics]
    return loaded.workflow


def test_environment_with_cuda_is_chosen(tmp_path):
    text = make_pixi_workflow(write_workspace(tmp_path, gpu=[conda("torch", depends=["__cuda >=12.4"])]))
    workflow = load(text)
    assert (workflow.environment.pixi.manifest, workflow.environment.pixi.environment) == ("pixi.toml", "gpu")
    assert workflow.resources.gpus == workflow.steps[0].resources.gpus_per_task == 1
    assert "gpus: 1 # the environment needs a driver for CUDA 12.4\n" in text
    assert "environment: gpu # or default\n" in text, "docs is older than the manifest"
    assert "task: test # or fit:all\n" in text, "server cannot run in sh"


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ('[tasks]\n"fit:all" = "python fit.py"\n', "fit:all"),
        ('[tasks]\na = "a"\ntrain = "python train.py"\n', "train"),
        ('[tasks]\nyes = "a"\n', "yes"),
    ],
)
def test_task(tmp_path, tasks, expected):
    workflow = load(make_pixi_workflow(write_workspace(tmp_path, tasks, environments=("default",))))
    assert (workflow.name, workflow.environment.pixi.environment, workflow.resources.gpus) == ("ws", "default", 0)
    assert (workflow.steps[0].name, workflow.steps[0].run.task) == (expected, expected)


def test_workspace_without_tasks(tmp_path):
    workflow = load(make_pixi_workflow(write_workspace(tmp_path, "", environments=("default",))))
    assert (workflow.steps[0].run.task, workflow.steps[0].run.command) == (None, "python train.py")


def test_workspace_that_is_not_locked(tmp_path):
    with pytest.raises(PixiError, match=r"there is no .*pixi.lock; run `pixi lock`"):
        make_pixi_workflow(write_files(tmp_path, MANIFEST))
