"""Sources without comments and docstrings: less to carry, and less to compile on the worker.

Every line stays where it is, so that tracebacks are true. Not for any Python: a line that begins with three quotes is
taken for a docstring, and no f-string may have its own kind of quotes inside of its braces. A test compiles all that
rides to the worker both ways.
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
    """The same program, but for `__doc__`."""
    return _TOKENS.sub(_replacement, source)


def _replacement(match: re.Match[str]) -> str:
    if match["text"]:
        return match["text"]
    doc = match["doc"]
    if not doc:
        return ""
    lines = "\n" * doc.count("\n")
    indent = doc[: doc.index('"')]
    behind = _INDENT.match(match.string, match.end())
    alone = indent and (behind is None or len(behind[1]) < len(indent))
    return f"{indent}pass{lines}" if alone else lines
