"""packtrain plugin"""

from __future__ import annotations

import json
from pathlib import Path

import click

from packtrain import services
from packtrain.cli.ui.output import json_option, print_line
from packtrain.errors import UsageError

PLUGIN_FILENAME = "packtrain-plugin.pyz"


@click.command(name="plugin")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=PLUGIN_FILENAME,
    show_default=True,
    help="The file to write.",
)
@json_option
def command(output: Path, as_json: bool) -> None:
    """Write the HTCondor file transfer plugin for osdf, pelican, http, https and s3.

    The plugin is one file. Use it in a single job (`transfer_plugins = osdf=packtrain-plugin.pyz`) or in a whole pool
    (`FILETRANSFER_PLUGINS`). It needs only Python 3.9 or later on the worker.
    """
    target = output / PLUGIN_FILENAME if output.is_dir() else output
    try:
        services.build_plugin(target)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from None
    if as_json:
        click.echo(json.dumps({"plugin": str(target), "bytes": target.stat().st_size}))
    else:
        print_line(f"wrote {target}; add `transfer_plugins = osdf={target.name}` to a submit file")
