"""Tests of the recipes as package data: valid, described, and copied without overwriting anything."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from packtrain import recipes
from packtrain.errors import NotFoundError, UsageError
from packtrain.spec.load import load_workflow_file

FILES = ("workflow.yaml", "README.md", "train.py")


def test_names_and_descriptions():
    assert recipes.list_names() == ("cifar10-dla", "cifar10-resnet", "imagenet-resnet50", "minimal", "mnist-cnn")
    assert recipes.describe("cifar10-resnet").startswith("A ResNet on CIFAR-10")


@pytest.mark.parametrize("name", recipes.list_names())
def test_workflow_is_valid(tmp_path, name):
    recipes.copy_to(name, tmp_path, schema_text="{}")
    loaded = load_workflow_file(tmp_path / "workflow.yaml")
    assert loaded.workflow is not None and loaded.diagnostics == ()
    assert loaded.workflow.name == name


def test_copy_to(tmp_path):
    copied = recipes.copy_to("cifar10-resnet", tmp_path / "new" / "folder")
    assert sorted(path.name for path in copied) == sorted(FILES)
    original = Path(recipes.__file__).parent / "cifar10-resnet"
    assert all((tmp_path / "new/folder" / name).read_bytes() == (original / name).read_bytes() for name in FILES)


def test_first_line_names_the_schema(tmp_path):
    copied = recipes.copy_to("minimal", tmp_path, schema_text='{"title": "w"}')
    first = (tmp_path / "workflow.yaml").read_text().splitlines()[0]
    prefix, _, path = first.partition("$schema=")
    assert prefix == "# yaml-language-server: "
    assert (tmp_path / path).read_text() == '{"title": "w"}'
    assert tmp_path / path in copied


@pytest.mark.parametrize("existing", FILES)
def test_nothing_is_overwritten(tmp_path, existing):
    (tmp_path / existing).write_text("mine")
    with pytest.raises(UsageError, match=rf"already has {existing}; nothing was overwritten"):
        recipes.copy_to("cifar10-resnet", tmp_path, schema_text="{}")
    assert [path.name for path in tmp_path.iterdir()] == [existing]
    assert (tmp_path / existing).read_text() == "mine"


def test_dangling_link_is_not_overwritten(tmp_path):
    (tmp_path / "train.py").symlink_to("nowhere")
    with pytest.raises(UsageError, match=r"train\.py"):
        recipes.copy_to("cifar10-resnet", tmp_path)


def test_unknown_recipe():
    with pytest.raises(NotFoundError, match=r"no recipe 'cifar'; available recipes: cifar10-dla, cifar10-resnet, "):
        recipes.describe("cifar")


def test_copy_from_a_zip(tmp_path):
    """Recipes also work from a zipped wheel."""
    package = Path(recipes.__file__).parent.parent
    with zipfile.ZipFile(tmp_path / "packtrain.zip", "w") as archive:
        modules = [package / name for name in ("__init__.py", "errors.py", "fileutil.py")]
        for path in [*modules, *package.glob("recipes/**/*")]:
            archive.write(path, path.relative_to(package.parent))
    code = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[1]); from packtrain import recipes; "
        "assert '.zip' in recipes.__file__; recipes.copy_to(recipes.list_names()[0], pathlib.Path(sys.argv[2]))"
    )
    subprocess.run([sys.executable, "-I", "-c", code, tmp_path / "packtrain.zip", tmp_path / "out"], check=True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(FILES)
