"""packtrain init"""

from __future__ import annotations

import json
from pathlib import Path

import click

from packtrain import recipes
from packtrain.cli.ui.output import dry_run_option, json_option, print_next_commands, print_result
from packtrain.errors import NotFoundError
from packtrain.spec.models.workflow import workflow_json_schema


@click.command(name="init")
@click.argument("recipe", default="minimal")
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--list", "listing", is_flag=True, help="List the recipes.")
@dry_run_option
@json_option
def command(recipe: str, folder: Path | None, list_recipes: bool, dry_run: bool, as_json: bool) -> None:
    """Start a workflow file, or copy out a recipe into FOLDER (one with the recipe's name if not said)."""
    if list_recipes:
        known = {name: recipes.describe(name) for name in recipes.list_names()}
        lines = "\n".join(f"  [bold]{name:<18}[/] {text}" for name, text in known.items())
        print_result(as_json, known, lambda out: out.print(lines))
        return
    if recipe not in recipes.list_names():
        raise NotFoundError(f"there is no recipe {recipe!r}; known are {', '.join(recipes.list_names())}")
    target = folder or Path(recipe)
    files = (
        []
        if dry_run
        else recipes.copy_to(recipe, target, schema_text=json.dumps(workflow_json_schema(), ensure_ascii=False))
    )
    data = {"recipe": recipe, "folder": str(target), "files": [str(file) for file in files]}
    verb = "would copy" if dry_run else "copied"
    print_result(as_json, data, lambda out: out.print(f"{verb} the recipe {recipe} to {target}"))
    if not as_json:
        workflow = target / "workflow.yaml"
        print_next_commands(
            (f"$EDITOR {workflow}", "look at it"),
            (f"packtrain check {workflow}", "is it right?"),
            (f"packtrain run {workflow}", "run it"),
        )
