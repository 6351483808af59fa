"""Complete examples to start from: a workflow, a training program and a README with measured results.

Each folder next to this file is a *recipe*; `packtrain init NAME` copies it. Recipes are package data, read through
importlib.resources, so that they also work from a wheel or a zip. Nothing in packtrain imports them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.errors import NotFoundError, UsageError
from packtrain.fileutil import atomic_write

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable  # Python 3.10 has it elsewhere

WORKFLOW_FILENAME = "workflow.yaml"
README_FILENAME = "README.md"
SCHEMA_PATH = ".packtrain/workflow.schema.json"  # next to the workflow; editors find it through SCHEMA_HEADER
SCHEMA_HEADER = f"# yaml-language-server: $schema={SCHEMA_PATH}\n"


def list_names() -> tuple[str, ...]:
    """Return the names of all recipes, in alphabetical order."""
    folders = (entry for entry in resources.files(__name__).iterdir() if entry.is_dir())
    return tuple(sorted(folder.name for folder in folders if folder.joinpath(WORKFLOW_FILENAME).is_file()))


def describe(name: str) -> str:
    """Return a one-line description of a recipe: the first line of text in its README."""
    lines = _recipe_folder(name).joinpath(README_FILENAME).read_text(encoding="utf-8").splitlines()
    return next(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def copy_to(name: str, folder: Path, schema_text: str | None = None) -> list[Path]:
    """Copy a recipe to a folder, and return the new files.

    Args:
        name: The name of the recipe.
        folder: The target folder; created if it does not exist.
        schema_text: The JSON schema of workflows. If given, it is written next to the workflow, whose first line then
            names it for editors.

    Raises:
        NotFoundError: There is no such recipe.
        UsageError: One of the files exists; nothing is written.
    """
    return write_files(folder, {entry.name: entry.read_bytes() for entry in _recipe_files(name)}, schema_text)


def write_files(folder: Path, files: Mapping[str, bytes], schema_text: str | None = None) -> list[Path]:
    """Write a workflow and its files to a folder, and return the new files.

    Args:
        folder: The target folder; created if it does not exist.
        files: Their contents by name; one is the workflow.
        schema_text: As in `copy_to`.

    Raises:
        UsageError: One of the files exists; nothing is written.
    """
    contents = dict(files)
    _reject_existing(folder, contents)
    if schema_text is not None:
        contents[WORKFLOW_FILENAME] = SCHEMA_HEADER.encode() + contents[WORKFLOW_FILENAME]
        contents[SCHEMA_PATH] = schema_text.encode()
    for path, data in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / path, data)
    return [folder / path for path in contents]


def _recipe_folder(name: str) -> Traversable:
    if name not in list_names():
        raise NotFoundError(f"there is no recipe {name!r}; available recipes: {', '.join(list_names())}")
    return resources.files(__name__).joinpath(name)


def _recipe_files(name: str) -> Iterator[Traversable]:
    """Yield the files of a recipe, the workflow first. Folders such as __pycache__ are skipped."""
    files = (entry for entry in _recipe_folder(name).iterdir() if entry.is_file())
    yield from sorted(files, key=lambda entry: (entry.name != WORKFLOW_FILENAME, entry.name))


def _reject_existing(folder: Path, contents: dict[str, bytes]) -> None:
    existing = [path for path in contents if os.path.lexists(folder / path)]
    if existing:
        raise UsageError(
            f"{folder} already has {' and '.join(existing)}; nothing was overwritten; "
            "choose another folder, or move the files"
        )
