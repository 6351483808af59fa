"""packtrain completion"""

from __future__ import annotations

import json

import click
from click.shell_completion import get_completion_class

from packtrain.cli.ui.output import json_option


@click.command(name="completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
def command(shell: str, as_json: bool) -> None:
    """Print the completion script of a shell.

    For bash: eval "$(packtrain completion bash)" in ~/.bashrc.
    """
    from packtrain.cli.main import cli

    made = get_completion_class(shell)
    assert made is not None
    script = made(cli, {}, "packtrain", "_PACKTRAIN_COMPLETE").source()
    click.echo(json.dumps({"shell": shell, "script": script}) if as_json else script)
