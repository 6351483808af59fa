"""The edits of the demo fit the recipe."""

from __future__ import annotations

import pytest

from packtrain import recipes
from packtrain.spec.load import load_workflow_file
from testbed import demo


def test_edited_recipe_is_valid(tmp_path):
    recipes.copy_to("cifar10-resnet", tmp_path)
    path = tmp_path / "workflow.yaml"
    path.write_text(demo.apply_edits(path.read_text(), demo.workflow_edits("http://127.0.0.1:1/c.tar.gz", "0" * 64)))
    loaded = load_workflow_file(path)
    assert loaded.workflow is not None and loaded.diagnostics == ()
    http = loaded.workflow.inputs["data"].http
    assert (http.url, http.sha256) == ("http://127.0.0.1:1/c.tar.gz", "0" * 64)
    assert http.token == "${env:PACKTRAIN_DEMO_TOKEN}"
    assert "--epochs 2 " in loaded.workflow.steps[0].run.command


def test_changed_recipe_is_detected():
    with pytest.raises(ValueError, match="should contain 'epochs' once, but contains it 2 times"):
        demo.apply_edits("epochs epochs", {"epochs": "x"})
