"""Parses the `queue` statement: the number of jobs, and the variables that differ between them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from packtrain.condor.submitfile.syntax.context import SubmitContext

DEFAULT_VARIABLE = "Item"

_KEYWORD = re.compile(r"(?:^|(?<=\s))(in|from|matching)\b(.*)", re.IGNORECASE | re.DOTALL)
_SLICE = re.compile(r"\[\s*(-?\d*)\s*(?::\s*(-?\d*)\s*)?(?::\s*(-?\d*)\s*)?\]")
_MATCH_KIND = re.compile(r"(files|dirs|any)\b", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


class QueueError(Exception):
    """The `queue` statement is invalid. The message says why."""


@dataclass(frozen=True)
class QueueStatement:
    """A parsed `queue` statement. Each row is one item with a value for each variable; there may be no items."""

    count: int = 1  # jobs per item
    variables: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    line: int = 1


def parse_queue(
    text: str, line: int, context: SubmitContext, read_block: Callable[[str], list[str] | None]
) -> QueueStatement:
    """Parse a `queue` statement. Raises QueueError.

    Args:
        text: What follows the keyword, with macros expanded.
        line: The line of the statement.
        context: Gives access to files of items.
        read_block: Returns the lines before the one that starts with a marker, or None if there is none.
    """
    match = _KEYWORD.search(text)
    count, variables = _parse_head(text[: match.start()] if match else text, bool(match))
    if not match:
        return QueueStatement(count, (), (), line)
    keyword, rest = match.group(1).lower(), match.group(2).strip()
    names = variables or (DEFAULT_VARIABLE,)
    selection, rest = _parse_slice(rest)
    if keyword == "matching":
        rows = [(path, *[""] * (len(names) - 1)) for path in _match_paths(rest, context)]
    else:
        entries = _read_entries(rest, keyword, context, read_block)
        rows = [_split_entry(entry, len(names)) for entry in entries]
    rows = rows[selection]
    if not rows:
        raise QueueError("queue has no items, so there is no job")
    return QueueStatement(count, names, tuple(rows), line)


def _parse_head(text: str, has_items: bool) -> tuple[int, tuple[str, ...]]:
    """Parse the count and the variables before `in`, `from` or `matching`."""
    names = [name for name in re.split(r"[\s,]+", text.strip()) if name]
    count = 1
    if names and names[0].isdecimal():
        count = int(names.pop(0)[:18])
    if (names and not has_items) or not all(_VARIABLE.fullmatch(name) for name in names):
        raise QueueError(f"queue {text.strip()[:60]!r} is invalid; write `queue`, `queue 50` or `queue x from …`")
    if count < 1:
        raise QueueError("queue 0 creates no job")
    return count, tuple(names)


def _parse_slice(rest: str) -> tuple[slice, str]:
    """Parse an optional slice, as in `[1:10:2]`, and return it with the remaining text."""
    match = _SLICE.match(rest)
    if not match:
        return slice(None), rest
    first, last, step = (int(part) if part else None for part in match.groups())
    is_index = ":" not in match.group()
    if step == 0:
        raise QueueError("a slice of `queue` cannot have the step 0")
    selection = slice(first, None if first in (None, -1) else first + 1) if is_index else slice(first, last, step)
    return selection, rest[match.end() :].strip()


def _match_paths(rest: str, context: SubmitContext) -> list[str]:
    kind = "any"
    match = _MATCH_KIND.match(rest)
    if match:
        kind, rest = match.group(1).lower(), rest[match.end() :]
    patterns = [pattern for pattern in re.split(r"[\s,]+", rest.strip().removeprefix("(").removesuffix(")")) if pattern]
    paths = [path for pattern in patterns for path in context.match_paths(pattern, kind)]
    if not paths:
        raise QueueError(f"queue matching {rest.strip()[:80]}: no file matches, so there is no job")
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
    entries = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
    if keyword == "from":
        return entries
    return [item for entry in entries for item in re.split(r"[\s,]+", entry) if item]


def _read_enclosed(rest: str, read_block: Callable[[str], list[str] | None]) -> list[str]:
    inline, parenthesis, after = rest.rpartition(")")
    if parenthesis:
        if after.strip():
            raise QueueError(f"queue has {after.strip()[:40]!r} after its closing parenthesis")
        return [inline]
    lines = read_block(")")
    if lines is None:
        raise QueueError("the list of `queue` has no closing parenthesis")
    return [rest, *lines]


def _read_item_file(rest: str, context: SubmitContext) -> list[str]:
    if rest.endswith("|"):
        raise QueueError(f"queue … from {rest[:60]} runs a program, which is not supported; write its output to a file")
    if not rest:
        raise QueueError("queue … from needs a file, or a list in parentheses")
    try:
        return context.read_text(rest).split("\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise QueueError(f"the items of `queue` cannot be read from {rest}: {reason}") from None


def _split_entry(entry: str, n_values: int) -> tuple[str, ...]:
    """Split an entry at commas or spaces; the last value is the rest of the line."""
    parts = re.split(r"[,\s]\s*", entry, maxsplit=n_values - 1) if n_values > 1 else [entry]
    return tuple(parts + [""] * (n_values - len(parts)))
