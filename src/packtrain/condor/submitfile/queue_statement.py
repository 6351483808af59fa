"""The `queue` statement: how many jobs, and the values that differ between them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from packtrain.condor.submitfile.context import SubmitContext

DEFAULT_VARIABLE = "Item"

_KEYWORD = re.compile(r"(?:^|(?<=\s))(in|from|matching)\b(.*)", re.IGNORECASE | re.DOTALL)
_SLICE = re.compile(r"\[\s*(-?\d*)\s*(?::\s*(-?\d*)\s*)?(?::\s*(-?\d*)\s*)?\]")
_MATCH_KIND = re.compile(r"(files|dirs|any)\b", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


class QueueError(Exception):
    """A sentence."""


@dataclass(frozen=True)
class QueueStatement:
    """`rows` is empty when there are no items; else each has a value for each variable."""

    count: int = 1
    variables: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    line: int = 1


def parse_queue(
    text: str, line: int, context: SubmitContext, read_block: Callable[[str], list[str] | None]
) -> QueueStatement:
    """`text` is what follows the word, macros filled in; `block` gives the lines up to a `)`. Raises QueueError."""
    found = _KEYWORD.search(text)
    count, variables = _parse_head(text[: found.start()] if found else text, bool(found))
    if not found:
        return QueueStatement(count, (), (), line)
    keyword, rest = found.group(1).lower(), found.group(2).strip()
    names = variables or (DEFAULT_VARIABLE,)
    chosen, rest = _parse_slice(rest)
    if keyword == "matching":
        rows = [(path, *[""] * (len(names) - 1)) for path in _match_paths(rest, context)]
    else:
        entries = _read_entries(rest, keyword, context, read_block)
        rows = [_split_entry(entry, len(names)) for entry in entries]
    rows = rows[chosen]
    if not rows:
        raise QueueError("queue names no items, so there is no job")
    return QueueStatement(count, names, tuple(rows), line)


def _parse_head(text: str, has_items: bool) -> tuple[int, tuple[str, ...]]:
    words = [word for word in re.split(r"[\s,]+", text.strip()) if word]
    count = 1
    if words and words[0].isdecimal():
        count = int(words.pop(0)[:18])
    if (words and not has_items) or not all(_VARIABLE.fullmatch(word) for word in words):
        raise QueueError(
            f"queue {text.strip()[:60]!r} is not understood; write `queue`, `queue 50` or `queue x from …`"
        )
    if count < 1:
        raise QueueError("queue 0 makes no job")
    return count, tuple(words)


def _parse_slice(rest: str) -> tuple[slice, str]:
    found = _SLICE.match(rest)
    if not found:
        return slice(None), rest
    first, *more = (int(part) if part else None for part in found.groups())
    plain = ":" not in found.group()
    if more[1] == 0:
        raise QueueError("a slice of `queue` cannot have the step 0")
    chosen = slice(first, None if first in (None, -1) else first + 1) if plain else slice(first, more[0], more[1])
    return chosen, rest[found.end() :].strip()


def _match_paths(rest: str, context: SubmitContext) -> list[str]:
    kind = "any"
    found = _MATCH_KIND.match(rest)
    if found:
        kind, rest = found.group(1).lower(), rest[found.end() :]
    patterns = [word for word in re.split(r"[\s,]+", rest.strip().removeprefix("(").removesuffix(")")) if word]
    paths = [path for pattern in patterns for path in context.match_paths(pattern, kind)]
    if not paths:
        raise QueueError(f"queue matching {rest.strip()[:80]}: nothing matches, so there is no job")
    return list(dict.fromkeys(paths))


def _read_entries(
    rest: str, keyword: str, context: SubmitContext, read_block: Callable[[str], list[str] | None]
) -> list[str]:
    if rest.startswith("("):
        lines = _read_enclosed(rest[1:], read_block)
    elif keyword == "from":
        lines = _read_item_file(rest, context)
    else:
        lines = [rest]
    kept = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
    if keyword == "from":
        return kept
    return [word for line in kept for word in re.split(r"[\s,]+", line) if word]


def _read_enclosed(rest: str, read_block: Callable[[str], list[str] | None]) -> list[str]:
    inline, closed, behind = rest.rpartition(")")
    if closed:
        if behind.strip():
            raise QueueError(f"queue has {behind.strip()[:40]!r} behind its closing bracket")
        return [inline]
    lines = read_block(")")
    if lines is None:
        raise QueueError("the list of `queue` has no closing bracket")
    return [rest, *lines]


def _read_item_file(rest: str, context: SubmitContext) -> list[str]:
    if rest.endswith("|"):
        raise QueueError(
            f"queue … from {rest[:60]} runs a program, which packtrain does not do; write what it prints into a file"
        )
    if not rest:
        raise QueueError("queue … from wants a file, or a list in brackets")
    try:
        return context.read_text(rest).split("\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise QueueError(f"the items of `queue` cannot be read from {rest}: {reason}") from None


def _split_entry(entry: str, n_values: int) -> tuple[str, ...]:
    """Values stand between commas or blanks; the last one takes the rest of the line."""
    parts = re.split(r"[,\s]\s*", entry, maxsplit=n_values - 1) if n_values > 1 else [entry]
    return tuple(parts + [""] * (n_values - len(parts)))
