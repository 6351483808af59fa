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
    """Print a shell completion script.

    For bash: eval "$(packtrain completion bash)" in ~/.bashrc.
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    cli = click.get_current_context().find_root().command
    script = completion_class(cli, {}, "packtrain", "_PACKTRAIN_COMPLETE").source()
    click.echo(json.dumps({"shell": shell, "script": script}) if as_json else script)
