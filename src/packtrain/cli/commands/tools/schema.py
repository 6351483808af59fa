"""packtrain schema"""

from __future__ import annotations

import json

import click

from packtrain.cli.ui.output import json_option
from packtrain.submission import workflow_json_schema


@click.command(name="schema")
@json_option
def command(as_json: bool) -> None:
    """Print the JSON Schema of workflow files.

    Editors use it to complete keys and mark errors; `packtrain init` writes the header line that they need.
    """
    click.echo(json.dumps(workflow_json_schema(), indent=None if as_json else 2, ensure_ascii=False))
