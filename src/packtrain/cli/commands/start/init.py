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
from packtrain.submission import workflow_json_schema


@click.command(name="init")
@click.argument("recipe", default="minimal")
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--list", "list_recipes", is_flag=True, help="List the recipes.")
@dry_run_option
@json_option
def command(recipe: str, folder: Path | None, list_recipes: bool, dry_run: bool, as_json: bool) -> None:
    """Create a workflow file by copying RECIPE to FOLDER (default: a folder with the name of the recipe)."""
    if list_recipes:
        descriptions = {name: recipes.describe(name) for name in recipes.list_names()}
        print_result(as_json, descriptions, lambda out: _print_descriptions(out, descriptions))
        return
    if recipe not in recipes.list_names():
        raise NotFoundError(f"there is no recipe {recipe!r}; available are {', '.join(recipes.list_names())}")
    target = folder or Path(recipe)
    schema_text = json.dumps(workflow_json_schema(), ensure_ascii=False)
    files = [] if dry_run else recipes.copy_to(recipe, target, schema_text=schema_text)
    data = {"recipe": recipe, "folder": str(target), "files": [str(file) for file in files]}
    verb = "would copy" if dry_run else "copied"
    print_result(as_json, data, lambda out: out.print(f"{verb} the recipe {recipe} to {target}"))
    if not as_json:
        workflow = target / "workflow.yaml"
        print_next_commands(
            (f"$EDITOR {workflow}", "edit it"),
            (f"packtrain check {workflow}", "check it"),
            (f"packtrain run {workflow}", "run it"),
        )


def _print_descriptions(out: Console, descriptions: Mapping[str, str]) -> None:
    for name, text in descriptions.items():
        out.print(Text.assemble("  ", (f"{name:<18}", "bold"), " ", text))
