"""Removes comments and docstrings from Python sources, so that less is sent to and compiled on workers.

Every line keeps its number, so tracebacks stay correct. This is not a general Python parser: a line that begins with
three quotes is taken for a docstring, and no f-string may use its own kind of quotes inside its braces. A test compiles
all files that are sent to workers both ways.
"""

from __future__ import annotations

import re

_TOKENS = re.compile(
    r'''
    (?P<doc>^[ \t]*"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""[ \t]*$)
    | (?P<text>"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    | \#[^\n]*
    ''',
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
_INDENT = re.compile(r"\s*^([ \t]*)\S", re.MULTILINE)


def strip_source(source: str) -> str:
    """Return the same program without comments and docstrings."""
    return _TOKENS.sub(_replacement, source)


def _replacement(match: re.Match[str]) -> str:
    if match["text"]:
        return match["text"]
    doc = match["doc"]
    if not doc:
        return ""
    newlines = "\n" * doc.count("\n")
    indent = doc[: doc.index('"')]
    next_line = _INDENT.match(match.string, match.end())
    is_whole_body = indent and (next_line is None or len(next_line[1]) < len(indent))
    return f"{indent}pass{newlines}" if is_whole_body else newlines
