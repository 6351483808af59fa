"""packtrain init"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from packtrain import recipes
from packtrain.cli.ui.output import dry_run_option, json_option, print_next_commands, print_result
from packtrain.errors import NotFoundError
from packtrain.submission import find_manifest, make_pixi_workflow, workflow_json_schema

_DEFAULT_RECIPE = "minimal"


@click.command(name="init")
@click.argument("recipe", required=False)
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--list", "list_recipes", is_flag=True, help="List the recipes.")
@dry_run_option
@json_option
def command(recipe: str | None, folder: Path | None, list_recipes: bool, dry_run: bool, as_json: bool) -> None:
    """Create a workflow file by copying RECIPE to FOLDER (default: a folder with the name of the recipe).

    Without RECIPE, in the folder of a Pixi workspace: write a workflow file for its environments and tasks. Elsewhere
    the recipe is minimal.
    """
    if list_recipes:
        descriptions = {name: recipes.describe(name) for name in recipes.list_names()}
        print_result(as_json, descriptions, lambda out: _print_descriptions(out, descriptions))
        return
    manifest = find_manifest(Path.cwd()) if recipe is None else None
    if manifest:
        _write_pixi_workflow(manifest, dry_run, as_json)
    else:
        _copy_recipe(recipe or _DEFAULT_RECIPE, folder, dry_run, as_json)


def _copy_recipe(recipe: str, folder: Path | None, dry_run: bool, as_json: bool) -> None:
    if recipe not in recipes.list_names():
        raise NotFoundError(f"there is no recipe {recipe!r}; available are {', '.join(recipes.list_names())}")
    target = folder or Path(recipe)
    files = [] if dry_run else recipes.copy_to(recipe, target, schema_text=_schema_text())
    data = {"recipe": recipe, "folder": str(target), "files": [str(file) for file in files]}
    verb = "would copy" if dry_run else "copied"
    print_result(as_json, data, lambda out: out.print(f"{verb} the recipe {recipe} to {target}"))
    if not as_json:
        _print_next_commands(target / recipes.WORKFLOW_FILENAME)


def _write_pixi_workflow(manifest: Path, dry_run: bool, as_json: bool) -> None:
    text = make_pixi_workflow(manifest)
    files = {recipes.WORKFLOW_FILENAME: text.encode()}
    written = [] if dry_run else recipes.write_files(Path(), files, _schema_text())
    data = {"manifest": str(manifest), "files": [str(file) for file in written]}
    verb = "would write" if dry_run else "wrote"
    print_result(as_json, data, lambda out: out.print(f"{verb} {recipes.WORKFLOW_FILENAME} for {manifest.name}"))
    if not as_json:
        _print_next_commands(Path(recipes.WORKFLOW_FILENAME))


def _schema_text() -> str:
    return json.dumps(workflow_json_schema(), ensure_ascii=False)


def _print_next_commands(workflow: Path) -> None:
    print_next_commands(
        (f"$EDITOR {workflow}", "edit it"),
        (f"packtrain check {workflow}", "check it"),
        (f"packtrain run {workflow}", "run it"),
    )


def _print_descriptions(out: Console, descriptions: Mapping[str, str]) -> None:
    for name, text in descriptions.items():
        out.print(Text.assemble("  ", (f"{name:<18}", "bold"), " ", text))
