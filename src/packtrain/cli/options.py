"""Values that options take, read by callbacks of click."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from packtrain.spec import units

Callback = Callable[[click.Context, click.Parameter, Any], Any]


def _reading(parse: Callable[[str], Any]) -> Callback:
    def read(context: click.Context, parameter: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return read


def _hex_digest(text: str) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text, re.ASCII):
        raise ValueError(f"{text[:80]!r} is no SHA-256 digest: 64 hexadecimal digits")
    return text.lower()


duration = _reading(units.duration)
size = _reading(units.size)
sha256 = _reading(_hex_digest)


def patience_option(help_: str) -> Callable[[Any], Any]:
    return click.option("--patience", metavar="TIME", callback=duration, default="10s", show_default=True, help=help_)
