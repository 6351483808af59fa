"""Sources without comments and docstrings: less to carry, and less to compile on the worker.

Every line stays where it is, so that tracebacks are true. Not for any Python: a line that begins with three quotes is
taken for a docstring, and no f-string may have its own kind of quotes inside of its braces. A test compiles all that
rides to the worker both ways.
"""

from __future__ import annotations

import re

_PARTS = re.compile(
    r'''
    (?P<doc>^[ \t]*"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""[ \t]*$)
    | (?P<text>"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    | \#[^\n]*
    ''',
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
_INDENT = re.compile(r"\s*^([ \t]*)\S", re.MULTILINE)


def stripped(source: str) -> str:
    """The same program, but for `__doc__`."""
    return _PARTS.sub(_instead, source)


def _instead(found: re.Match[str]) -> str:
    if found["text"]:
        return found["text"]
    doc = found["doc"]
    if not doc:
        return ""
    lines = "\n" * doc.count("\n")
    indent = doc[: doc.index('"')]
    behind = _INDENT.match(found.string, found.end())
    alone = indent and (behind is None or len(behind[1]) < len(indent))
    return f"{indent}pass{lines}" if alone else lines
