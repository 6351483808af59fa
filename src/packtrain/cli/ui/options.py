"""Options that several commands share, and click callbacks that parse their values."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from packtrain.spec import units
from packtrain.transfer.http.digest_headers import parse_digest

ClickCallback = Callable[[click.Context, click.Parameter, Any], Any]


def _parse_callback(parse: Callable[[str], Any]) -> ClickCallback:
    """Make a click callback of a function that parses text or raises ValueError."""

    def callback(context: click.Context, parameter: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


duration_callback = _parse_callback(units.parse_duration)
size_callback = _parse_callback(units.parse_size)


def digest_option(algorithm: str, help_text: str) -> Callable[[Any], Any]:
    """Add an option named after the digest algorithm."""
    callback = _parse_callback(partial(parse_digest, algorithm))
    return click.option(f"--{algorithm}", metavar="DIGEST", callback=callback, help=help_text)


def retry_timeout_option(help_text: str) -> Callable[[Any], Any]:
    """Add --retry-timeout, passed as `retry_timeout_s`."""
    return click.option(
        "--retry-timeout",
        "retry_timeout_s",
        metavar="TIME",
        callback=duration_callback,
        default="10s",
        show_default=True,
        help=help_text,
    )


def _parse_notify_target(text: str) -> str:
    from packtrain.notifications import validate_target

    return validate_target(text)


def notify_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --notify COMMAND|URL, passed as `notify_target`."""
    help_text = "When the run ends, run this command or POST JSON to this URL."
    callback = _parse_callback(_parse_notify_target)
    return click.option("--notify", "notify_target", metavar="COMMAND|URL", callback=callback, help=help_text)(command)


class DetachCommand(click.Command):
    """A command with `detach_options`: `--detach` has an optional value, but never takes the next argument as one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(
            ctx, ["--detach-job" if argument == "--detach=job" else argument for argument in args]
        )


def detach_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --detach and --detach=job to a DetachCommand, passed as `detach` and `detach_job`."""
    help_text = "Supervise the run in the background; --detach=job: in a Slurm job that requeues itself."
    command = click.option("--detach-job", is_flag=True, hidden=True)(command)
    return click.option("--detach", is_flag=True, help=help_text)(command)


def expect_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --expect PATH, which can be repeated."""

    def callback(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
        # Imported here because it imports pydantic, which most commands do without.
        from packtrain.spec.models.field_types import check_relative_path

        try:
            return tuple(map(check_relative_path, value))
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    help_text = "Fail the job unless this file or pattern is among its outputs and not empty."
    return click.option("--expect", metavar="PATH", multiple=True, callback=callback, help=help_text)(command)


def pixi_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --pixi MANIFEST[:ENVIRONMENT]."""
    help_text = "Run all commands in this locked Pixi environment, e.g. pixi.toml:gpu."
    return click.option("--pixi", metavar="MANIFEST[:ENV]", default="", help=help_text)(command)


def repeat_arguments(
    file: Path, engine: str | None, no_container: bool, no_gpu: bool, expect: tuple[str, ...], pixi: str
) -> str:
    """Return a workflow file and the options that were given for it, for a suggested command."""
    given = [*(["--on", engine] if engine else []), *["--no-container"] * no_container, *["--no-gpu"] * no_gpu]
    given += ["--pixi", pixi] if pixi else []
    return shlex.join([str(file), *given, *(part for path in expect for part in ("--expect", path))])
