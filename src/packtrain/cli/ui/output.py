"""Output of commands: results as text or JSON, next commands, problems, and hints for failed transfers."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from packtrain.errors import FailedError
from packtrain.formatting import CONTROL_CHARS, replace_control_chars
from packtrain.views.terminal import make_console

if TYPE_CHECKING:
    from packtrain.spec.diagnostics import Diagnostic

_MAX_INDENTED_CHARS = 200_000
_HINT_BY_FAILURE_KIND = {
    "object_missing": "check the address",
    "access_denied": "--token-env NAME or --token-file FILE sends a token",
    "unexpected_content": "open the address in a browser; is a login or a token needed?",
    "digest_mismatch": "check that the digest is right and belongs to this version of the file",
    "service_unavailable": "try again later, retry longer with --retry-timeout, or add a --mirror",
    "network_unreachable": "check the network and the address, or add a --mirror",
    "host_unknown": "check the address and the DNS of this machine",
    "upload_failed": "check the address, or retry longer with --retry-timeout",
    "disk_full": "free disk space, or choose another disk with -o",
}

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
_no_container_option = click.option("--no-container", is_flag=True, help="Run every step on the host.")
_no_gpu_option = click.option("--no-gpu", is_flag=True, help="Run without the GPUs that the workflow requests.")


def resource_override_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --no-container and --no-gpu, for machines that lack what the workflow requests."""
    return _no_container_option(_no_gpu_option(command))


@functools.cache
def console() -> Console:
    """Return the console of standard output."""
    return make_console(soft_wrap=True)


@functools.cache
def error_console() -> Console:
    """Return the console of standard error."""
    return make_console(stderr=True, soft_wrap=True)


def print_result(as_json: bool, data: Any, render_text: Callable[[Console], None]) -> None:
    """Print a result: `data` as JSON, or the text that `render_text` prints."""
    if as_json:
        print_json(data)
    else:
        render_text(console())


def print_json(data: Any) -> None:
    """Print data as JSON, indented if it is short: that takes ten times as long, which shows with thousands of jobs."""
    text = json.dumps(data, ensure_ascii=False)
    if len(text) <= _MAX_INDENTED_CHARS:
        text = json.dumps(data, indent=1, ensure_ascii=False)
    print_json_text(text)


def print_json_text(text: str) -> None:
    """Print JSON; characters that it allows, but terminals interpret, are escaped, which does not change the data."""
    click.echo(CONTROL_CHARS.sub(_escape_in_json, text))


def _escape_in_json(match: re.Match[str]) -> str:
    return match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}"


def print_line(text: str, *, err: bool = False) -> None:
    """Print a line without colors; control characters are shown as escapes."""
    click.echo(replace_control_chars(text, keep="\n\t"), err=err)


def print_next_commands(*commands: tuple[str, str]) -> None:
    """Suggest what to do next, as pairs of (command, purpose)."""
    width = max(len(command) for command, _ in commands)
    out = console()
    out.print()
    for command, purpose in commands:
        out.print(Text.assemble("  ", (f"{command:<{width}}", "bold"), "  ", (purpose, "dim")))


def print_diagnostics(diagnostics: Sequence[Diagnostic]) -> None:
    """Print errors and warnings to standard error, in the order of the file."""
    for diagnostic in diagnostics:
        style = "red" if diagnostic.is_error else "yellow"
        error_console().print(str(diagnostic), style=style)


def print_warning(text: str) -> None:
    """Print a warning to standard error."""
    error_console().print(text, style="yellow")


def add_hint(error: FailedError) -> FailedError:
    """Return the failure of a transfer with a hint appended, if its kind has one; never append it twice."""
    hint = _HINT_BY_FAILURE_KIND.get(error.kind)
    return FailedError(error.kind, f"{error.detail}; {hint}") if hint and not error.detail.endswith(hint) else error
