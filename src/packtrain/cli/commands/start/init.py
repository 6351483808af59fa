"""packtrain init"""

from __future__ import annotations

import json
from pathlib import Path

import click

from packtrain import recipes
from packtrain.cli.ui.output import dry_run_option, json_option, say_next, show
from packtrain.errors import NotFoundError
from packtrain.spec.models.workflow import schema


@click.command(name="init")
@click.argument("recipe", default="minimal")
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--list", "listing", is_flag=True, help="List the recipes.")
@dry_run_option
@json_option
def command(recipe: str, folder: Path | None, listing: bool, dry_run: bool, as_json: bool) -> None:
    """Start a workflow file, or copy out a recipe into FOLDER (one with the recipe's name if not said)."""
    if listing:
        known = {name: recipes.describe(name) for name in recipes.names()}
        lines = "\n".join(f"  [bold]{name:<18}[/] {text}" for name, text in known.items())
        show(as_json, known, lambda out: out.print(lines))
        return
    if recipe not in recipes.names():
        raise NotFoundError(f"there is no recipe {recipe!r}; known are {', '.join(recipes.names())}")
    target = folder or Path(recipe)
    files = [] if dry_run else recipes.copy_out(recipe, target, schema_text=json.dumps(schema(), ensure_ascii=False))
    data = {"recipe": recipe, "folder": str(target), "files": [str(file) for file in files]}
    verb = "would copy" if dry_run else "copied"
    show(as_json, data, lambda out: out.print(f"{verb} the recipe {recipe} to {target}"))
    if not as_json:
        workflow = target / "workflow.yaml"
        say_next(
            (f"$EDITOR {workflow}", "look at it"),
            (f"packtrain check {workflow}", "is it right?"),
            (f"packtrain run {workflow}", "run it"),
        )
