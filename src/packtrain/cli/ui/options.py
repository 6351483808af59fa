"""Values that options take, read by callbacks of click."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from packtrain.spec import units
from packtrain.transfer.http.digest_headers import parsed

Callback = Callable[[click.Context, click.Parameter, Any], Any]


def _reading(parse: Callable[[str], Any]) -> Callback:
    def read(context: click.Context, parameter: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return read


duration = _reading(units.duration)
size = _reading(units.size)


def digest_option(algorithm: str, help_: str) -> Callable[[Any], Any]:
    read = _reading(partial(parsed, algorithm))
    return click.option(f"--{algorithm}", metavar="DIGEST", callback=read, help=help_)


def patience_option(help_: str) -> Callable[[Any], Any]:
    return click.option("--patience", metavar="TIME", callback=duration, default="10s", show_default=True, help=help_)


def _whom_to_tell(text: str) -> str:
    from packtrain.notifications import checked

    return checked(text)


def notify_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--notify COMMAND|URL"""
    help_ = "When the run has ended: run this command, or POST JSON to this address."
    read = _reading(_whom_to_tell)
    return click.option("--notify", "tell", metavar="COMMAND|URL", callback=read, help=help_)(command)


def expect_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--expect PATH, any number of times."""

    def read(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
        from packtrain.spec.models.field_types import inside  # and pydantic with it, which most commands do without

        try:
            return tuple(map(inside, value))
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    help_ = "A file, or a pattern, that must be among the outputs and not be empty."
    return click.option("--expect", metavar="PATH", multiple=True, callback=read, help=help_)(command)
