"""Splits the argument lists, variables and file lists of submit files, and quotes texts for the shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable

from packtrain.condor.submitfile.syntax.macros import PLACEHOLDER

_WHITESPACE = " \t\r\n"


class QuotingError(Exception):
    """A value has invalid quotes or separators. The message says where."""


def split_arguments(text: str) -> list[str]:
    """Split arguments in HTCondor's old or new syntax. Raises QuotingError."""
    text = text.strip()
    if text.startswith('"'):
        return _split_quoted(_unwrap_quotes(text, "arguments"))
    return [argument.replace('\\"', '"') for argument in text.split()]


def split_environment(text: str) -> list[tuple[str, str]]:
    """Split variables in HTCondor's old or new syntax. Raises QuotingError."""
    text = text.strip()
    parts = _split_quoted(_unwrap_quotes(text, "environment")) if text.startswith('"') else text.split(";")
    variables = []
    for part in parts:
        key, equals, value = part.strip().partition("=")
        if equals and key.strip():
            variables.append((key.strip(), value))
        elif part.strip():
            raise QuotingError(f"environment has {part.strip()[:40]!r}, which is not NAME=VALUE")
    return variables


def split_list(text: str) -> list[str]:
    """Split a list of files at commas. Quotation marks around the whole list are ignored."""
    text = text.strip()
    if len(text) > 1 and text.startswith('"') and text.endswith('"'):
        text = text[1:-1]
    return [part.strip() for part in text.split(",") if part.strip()]


def split_remaps(text: str) -> list[tuple[str, str]]:
    r"""Split `"a = b; c = d"` into pairs; `\;` is a literal semicolon. Raises QuotingError."""
    text = _unwrap_quotes(text.strip(), "transfer_output_remaps") if text.strip().startswith('"') else text
    remaps = []
    for part in re.split(r"(?<!\\);", text):
        name, equals, target = re.sub(r"\\;", ";", part).partition("=")
        if equals and name.strip() and target.strip():
            remaps.append((name.strip(), target.strip()))
        elif part.strip():
            raise QuotingError(f"transfer_output_remaps has {part.strip()[:40]!r}, which is not NAME = PATH")
    return remaps


def unquote_classad(text: str) -> str:
    """Return the value of a ClassAd string, or the text itself if it is not quoted."""
    text = text.strip()
    if len(text) > 1 and text.startswith('"') and text.endswith('"'):
        return text[1:-1].replace('\\"', '"')
    return text


def _unwrap_quotes(text: str, key: str) -> str:
    """Return the text inside double quotes, where two double quotes mean one. Raises QuotingError."""
    inner = text[1:-1]
    if len(text) < 2 or not text.endswith('"') or '"' in inner.replace('""', ""):
        raise QuotingError(f'{key} has an unmatched double quote; inside "…" write it as ""')
    return inner.replace('""', '"')


def _split_quoted(text: str) -> list[str]:
    """Split at whitespace outside single quotes, inside which two single quotes mean one. Raises QuotingError."""
    arguments: list[str] = []
    current: str | None = None
    is_quoted, position = False, 0
    while position < len(text):
        char = text[position]
        if char == "'" and is_quoted and text[position + 1 : position + 2] == "'":
            current, position = (current or "") + "'", position + 1
        elif char == "'":
            is_quoted, current = not is_quoted, current or ""
        elif char in _WHITESPACE and not is_quoted:
            arguments += [] if current is None else [current]
            current = None
        else:
            current = (current or "") + char
        position += 1
    if is_quoted:
        raise QuotingError("unmatched single quote; inside '…' write it as ''")
    return arguments + ([] if current is None else [current])


def quote_for_shell(text: str, variable_name: Callable[[str], str], template_fields: Iterable[str]) -> str:
    """Return a text as one word of a shell command, with placeholders as variables.

    Args:
        text: A template.
        variable_name: Returns the variable for the name of a placeholder.
        template_fields: A literal `{field}` with one of these names is quoted so that the workflow does not replace it.
    """
    parts, position = [], 0
    for match in PLACEHOLDER.finditer(text):
        parts.append(_quote_literal(text[position : match.start()], template_fields))
        parts.append(f'"${variable_name(match.group(1))}"')
        position = match.end()
    return "".join((*parts, _quote_literal(text[position:], template_fields))) or "''"


def _quote_literal(text: str, template_fields: Iterable[str]) -> str:
    if not text:
        return ""
    quoted = shlex.quote(text)
    for name in template_fields:
        quoted = quoted.replace(f"{{{name}}}", f"{{''{name}}}")
    return quoted
