"""Values that options take, read by callbacks of click."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from packtrain.spec import units
from packtrain.transfer.http.digest_headers import parse_digest

ClickCallback = Callable[[click.Context, click.Parameter, Any], Any]


def _parse_callback(parse: Callable[[str], Any]) -> ClickCallback:
    def callback(context: click.Context, parameter: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


duration_callback = _parse_callback(units.parse_duration)
size_callback = _parse_callback(units.parse_size)


def digest_option(algorithm: str, help_text: str) -> Callable[[Any], Any]:
    read = _parse_callback(partial(parse_digest, algorithm))
    return click.option(f"--{algorithm}", metavar="DIGEST", callback=read, help=help_text)


def retry_timeout_option(help_text: str) -> Callable[[Any], Any]:
    return click.option(
        "--retry-timeout", metavar="TIME", callback=duration_callback, default="10s", show_default=True, help=help_text
    )


def _parse_notify_target(text: str) -> str:
    from packtrain.notifications import validate_target

    return validate_target(text)


def notify_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--notify COMMAND|URL"""
    help_ = "When the run has ended: run this command, or POST JSON to this address."
    read = _parse_callback(_parse_notify_target)
    return click.option("--notify", "tell", metavar="COMMAND|URL", callback=read, help=help_)(command)


def expect_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--expect PATH, any number of times."""

    def callback(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
        from packtrain.spec.models.field_types import (
            check_relative_path,  # and pydantic with it, which most commands do without
        )

        try:
            return tuple(map(check_relative_path, value))
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    help_ = "A file, or a pattern, that must be among the outputs and not be empty."
    return click.option("--expect", metavar="PATH", multiple=True, callback=callback, help=help_)(command)
