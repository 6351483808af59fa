"""The `packtrain` command. Commands are imported when they are called, so that --help answers at once."""

from __future__ import annotations

import gc
import importlib
import json
import sys
from typing import Any

import click

from packtrain import __version__
from packtrain.errors import EXIT_INTERRUPTED, FailedError, PacktrainError

# By section of the help and package of `commands`.
COMMAND_GROUPS = {
    "start": {
        "init": "Start a workflow file, or copy out a recipe.",
        "check": "Check a workflow file: all problems at once, with their lines.",
        "plan": "Show what would be done: jobs, data and sizes, steps, outputs.",
        "run": "Run a workflow file, or a submit file of HTCondor as it is.",
        "resume": "Go on with a run.",
        "cancel": "End a run or a job.",
    },
    "watch": {
        "ps": "List runs, or the jobs of a run; -w watches.",
        "logs": "Show what the steps of a job wrote; -f follows.",
        "why": "Explain what happened, whose fault it was and what to do.",
        "sites": "Show what earlier runs learned of sites: failures, speed, which are avoided.",
    },
    "results": {
        "outputs": "List what a run brought home, or copy it.",
        "report": "Show where every hour went: of a run, of HTCondor's logs, of a table of jobs.",
        "plot": "Draw the training of a run: loss and metric of every job.",
    },
    "data": {
        "get": "Fetch files: several sources, resumed, verified, unpacked.",
        "put": "Upload files or folders, verified.",
        "checksums": "Write or verify the checksums file of a data file.",
        "index": "List the samples of an archive, to train from where they are.",
        "preview": "Show some samples of a dataset as one picture.",
        "cache": "List or remove fetched data that jobs share.",
    },
    "tools": {
        "convert": "Convert an HTCondor submit file to a workflow file.",
        "doctor": "Is this machine ready? Versions, disk, engines, tokens, file system.",
        "simulate": "Play runs in a pool like the one that was seen, and compare policies.",
        "plugin": "Write HTCondor's transfer plugin for osdf, http and s3, in one file.",
        "schema": "Print the JSON Schema of workflow files.",
        "completion": "Print the completion script of a shell.",
    },
}
GROUP_BY_COMMAND = {name: group for group, commands in COMMAND_GROUPS.items() for name in commands}
HIDDEN_COMMANDS = {"supervise": "start"}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(GROUP_BY_COMMAND)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        group = GROUP_BY_COMMAND.get(cmd_name) or HIDDEN_COMMANDS.get(cmd_name)
        if group is None:
            return None
        command: click.Command = _import_command_module(f"packtrain.cli.commands.{group}.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group, commands in COMMAND_GROUPS.items():
            with formatter.section(group.capitalize()):
                formatter.write_dl(list(commands.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            import difflib

            close = difflib.get_close_matches(args[0], GROUP_BY_COMMAND, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else "; see `packtrain --help`"
            raise click.UsageError(f"there is no command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)


def _import_command_module(module_name: str) -> Any:
    """What modules make while they load stays: to look for garbage among it takes a tenth of the time."""
    gc.disable()
    try:
        return importlib.import_module(module_name)
    finally:
        gc.freeze()
        gc.enable()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", message="packtrain %(version)s")
def cli() -> None:
    """Carry a dataset and a training program to any machine, keep it alive there, bring every run home.

    Start with `packtrain init`, then `packtrain run workflow.yaml`.
    """


def main() -> None:
    try:
        code = cli.main(prog_name="packtrain", standalone_mode=False)  # what ctx.exit() was given, if anything
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(EXIT_INTERRUPTED)
    except PacktrainError as error:
        _print_error(error)
        sys.exit(_exit_code(error))
    except BrokenPipeError:
        sys.stderr.close()  # the reader has left, e.g. `packtrain logs | head`
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def _exit_code(error: PacktrainError) -> int:
    """Of work that failed, the code of its kind."""
    from packtrain.events import Failure  # not needed for --help

    return Failure.from_error(error, "").exit_code if isinstance(error, FailedError) else error.exit_code


def _print_error(error: PacktrainError) -> None:
    if "--json" in sys.argv:
        kind = {"kind": error.kind} if isinstance(error, FailedError) else {}
        click.echo(json.dumps({"error": str(error), **kind, "exit_code": _exit_code(error)}))
    else:
        click.echo(f"packtrain: {error}", err=True)
