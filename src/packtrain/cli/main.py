"""The `packtrain` command. It imports a command only when it is called, so that --help prints at once."""

from __future__ import annotations

import importlib
import io
import json
import logging
import sys
from typing import Any, NoReturn

import click

from packtrain import __version__
from packtrain.errors import EXIT_INTERRUPTED, FailedError, PacktrainError
from packtrain.formatting import replace_control_chars

# Section of the help, which is also the package below `commands` -> command -> one line of help.
COMMAND_GROUPS = {
    "start": {
        "init": "Create a workflow file from a recipe.",
        "check": "Check a workflow file and list every problem with its line.",
        "plan": "Show the jobs, data, resources and outputs of a workflow.",
        "run": "Run a workflow file or an HTCondor submit file.",
        "resume": "Resume a run and retry the jobs that have not succeeded.",
        "cancel": "Cancel a run or a job.",
    },
    "watch": {
        "ps": "List runs, or the jobs of a run; -w watches.",
        "logs": "Show the output of a job's steps; -f follows.",
        "why": "Explain what happened, what caused it and what to do.",
        "sites": "Show failure rates and speeds of sites in earlier runs.",
    },
    "results": {
        "outputs": "List or copy the outputs of a run.",
        "report": "Show how slot time was used by a run, HTCondor logs or a table.",
        "plot": "Plot the loss and metrics of every job of a run.",
    },
    "data": {
        "get": "Download files from several sources, verify and unpack them.",
        "put": "Upload files or folders and verify them.",
        "checksums": "Write or verify the block checksums of a file.",
        "index": "Index the samples of an archive so that jobs can stream them.",
        "preview": "Save some samples of a dataset as one image.",
        "cache": "List or remove files in the download cache.",
    },
    "tools": {
        "convert": "Convert an HTCondor submit file to a workflow file.",
        "doctor": "Check this machine's setup: versions, disk, engines, tokens.",
        "simulate": "Simulate runs on a model of your pool; compare retry policies.",
        "plugin": "Write the HTCondor transfer plugin for osdf, http and s3.",
        "schema": "Print the JSON Schema of workflow files.",
        "completion": "Print a shell completion script.",
    },
}
GROUP_BY_COMMAND = {name: group for group, commands in COMMAND_GROUPS.items() for name in commands}
_LINE_CHARS = "\n\t"  # control characters that a message may have
HIDDEN_COMMANDS = {"supervise": "start"}


def _configure_logging(context: click.Context, parameter: click.Parameter, verbosity: int) -> None:
    """Write messages of packtrain's loggers to standard error; without -v they are silent."""
    if verbosity:
        logger, handler = logging.getLogger("packtrain"), logging.StreamHandler()
        handler.setFormatter(_LineFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO if verbosity == 1 else logging.DEBUG)


class _LineFormatter(logging.Formatter):
    """Formats messages, with control characters as escapes: they may come from a server."""

    def format(self, record: logging.LogRecord) -> str:
        return replace_control_chars(super().format(record), keep=_LINE_CHARS)


_VERBOSE_OPTION = click.Option(
    ["-v", "--verbose"],
    count=True,
    expose_value=False,
    callback=_configure_logging,
    help="Show what packtrain does; -vv shows more.",
)


class LazyGroup(click.Group):
    """The top-level command: lists commands by section and imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(GROUP_BY_COMMAND)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        group = GROUP_BY_COMMAND.get(cmd_name) or HIDDEN_COMMANDS.get(cmd_name)
        if group is None:
            return None
        command: click.Command = importlib.import_module(f"packtrain.cli.commands.{group}.{cmd_name}").command
        if _VERBOSE_OPTION not in command.params:
            command.params.append(_VERBOSE_OPTION)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group, commands in COMMAND_GROUPS.items():
            with formatter.section(group.capitalize()):
                formatter.write_dl(list(commands.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            import difflib

            matches = difflib.get_close_matches(args[0], GROUP_BY_COMMAND, n=1)
            hint = f"; did you mean {matches[0]!r}?" if matches else "; `packtrain --help` lists the commands"
            raise click.UsageError(f"there is no command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", message="packtrain %(version)s")
def cli() -> None:
    """Run PyTorch trainings on HTCondor pools and on this machine: download the data, restart after failures, retrieve
    the outputs.

    Start with `packtrain init`, then `packtrain run workflow.yaml`.
    """


def main() -> None:
    """Run the command line and exit with its exit code."""
    run_command(cli, "packtrain")


def run_command(command: click.Command, prog_name: str) -> NoReturn:
    """Run a click command with the arguments of this process, print its errors, and exit with its exit code."""
    try:
        code = command.main(prog_name=prog_name, standalone_mode=False)  # the argument of ctx.exit(), or None
    except click.ClickException as error:
        text = io.StringIO()
        error.show(text)
        click.echo(replace_control_chars(text.getvalue(), keep=_LINE_CHARS), nl=False, err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(EXIT_INTERRUPTED)
    except PacktrainError as error:
        _print_error(error)
        sys.exit(_exit_code(error))
    except BrokenPipeError:
        sys.stderr.close()  # the reader closed the pipe, e.g. `packtrain logs | head`
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def _exit_code(error: PacktrainError) -> int:
    """Return the exit code of an error; a FailedError has the one of its failure kind."""
    from packtrain.events import Failure  # not needed for --help

    return Failure.from_error(error, "").exit_code if isinstance(error, FailedError) else error.exit_code


def _print_error(error: PacktrainError) -> None:
    if "--json" in sys.argv:
        kind = {"kind": error.kind} if isinstance(error, FailedError) else {}
        click.echo(json.dumps({"error": str(error), **kind, "exit_code": _exit_code(error)}))
    else:
        click.echo(f"packtrain: {replace_control_chars(str(error), keep=_LINE_CHARS)}", err=True)
