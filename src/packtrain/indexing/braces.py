"""Expand braces in URLs as a shell does: `train-{000..146}.tar`, `{train,val}.tar`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packtrain.errors import UsageError

_BRACE_PATTERN = re.compile(r"\{([^{}]*)\}")
_RANGE_PATTERN = re.compile(r"(\d+)\.\.(\d+)", re.ASCII)
_MAX_URLS = 100_000


def expand_braces(url: str) -> list[str]:
    """Return the expanded URLs. Braces without a comma or two dots are kept.

    Raises UsageError if there are more than 100,000 URLs.
    """
    urls = []
    for expansion in _iter_expansions(url):
        urls.append(expansion)
        if len(urls) > _MAX_URLS:
            raise UsageError(f"{url} expands to more than {_MAX_URLS} URLs")
    return urls


def _iter_expansions(url: str, start: int = 0) -> Iterator[str]:
    brace = _BRACE_PATTERN.search(url, start)
    if brace is None:
        yield url
        return
    choices = _parse_choices(brace.group(1))
    if choices is None:
        yield from _iter_expansions(url, brace.end())
        return
    for choice in choices:
        head = url[: brace.start()] + choice
        yield from (head + tail for tail in _iter_expansions(url[brace.end() :]))


def _parse_choices(text: str) -> Iterator[str] | None:
    numbers = _RANGE_PATTERN.fullmatch(text)
    if numbers is None:
        return iter(text.split(",")) if "," in text else None
    first, last = numbers.groups()
    width = max(len(first), len(last)) if "0" in (first[0], last[0]) else 0
    step = 1 if int(first) <= int(last) else -1
    return (str(number).zfill(width) for number in range(int(first), int(last) + step, step))
