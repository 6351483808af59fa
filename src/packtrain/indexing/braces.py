"""Addresses of many shards in one: `train-{000..146}.tar`, `{train,val}.tar`, as shells have it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packtrain.errors import UsageError

_BRACES = re.compile(r"\{([^{}]*)\}")
_NUMBERS = re.compile(r"(\d+)\.\.(\d+)", re.ASCII)
_MOST = 100_000


def expanded(url: str) -> list[str]:
    """Braces without a comma or two dots stay as they are. Raises UsageError where there would be too many."""
    found = []
    for one in _expanded(url):
        found.append(one)
        if len(found) > _MOST:
            raise UsageError(f"{url} means more than {_MOST} addresses")
    return found


def _expanded(url: str, start: int = 0) -> Iterator[str]:
    brace = _BRACES.search(url, start)
    if brace is None:
        yield url
        return
    choices = _choices(brace.group(1))
    if choices is None:
        yield from _expanded(url, brace.end())
        return
    for choice in choices:
        head = url[: brace.start()] + choice
        yield from (head + tail for tail in _expanded(url[brace.end() :]))


def _choices(text: str) -> Iterator[str] | None:
    numbers = _NUMBERS.fullmatch(text)
    if numbers is None:
        return iter(text.split(",")) if "," in text else None
    first, last = numbers.groups()
    width = max(len(first), len(last)) if "0" in (first[0], last[0]) else 0
    step = 1 if int(first) <= int(last) else -1
    return (str(number).zfill(width) for number in range(int(first), int(last) + step, step))
