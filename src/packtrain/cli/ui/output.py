"""Every result has a text and a JSON form, and the next useful commands."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

if TYPE_CHECKING:
    from packtrain.spec.diagnostics import Diagnostic

_MAX_INDENTED_CHARS = 200_000

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")


_no_container_option = click.option("--no-container", is_flag=True, help="Run every step on the host.")
_no_gpu_option = click.option("--no-gpu", is_flag=True, help="Run without the GPUs that the workflow asks for.")


def resource_override_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Ways to run a workflow on a machine that lacks what it asks for."""
    return _no_container_option(_no_gpu_option(command))


@functools.cache
def console() -> Console:
    return Console(highlight=False, soft_wrap=True)


@functools.cache
def error_console() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


def print_result(as_json: bool, data: Any, render_text: Callable[[Console], None]) -> None:
    if as_json:
        click.echo(_format_json(data))
    else:
        render_text(console())


def _format_json(data: Any) -> str:
    """Indented where a person may read it; that takes ten times as long, which counts for thousands of jobs."""
    text = json.dumps(data, ensure_ascii=False)
    return text if len(text) > _MAX_INDENTED_CHARS else json.dumps(data, indent=1, ensure_ascii=False)


def print_next_commands(*commands: tuple[str, str]) -> None:
    """What a person may want to do now: (command, what for)."""
    width = max(len(command) for command, _ in commands)
    out = console()
    out.print()
    for command, purpose in commands:
        out.print(f"  [bold]{command:<{width}}[/]  [dim]{purpose}[/]")


def print_diagnostics(diagnostics: Sequence[Diagnostic]) -> None:
    """On the error stream, errors and warnings alike, in the order of the file."""
    for problem in diagnostics:
        style = "red" if problem.is_error else "yellow"
        error_console().print(str(problem), style=style, markup=False)


def pluralize(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
