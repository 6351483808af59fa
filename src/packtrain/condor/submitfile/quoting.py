"""How submit files write argument lists, variables and lists of files; and how a shell wants them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable

from packtrain.condor.submitfile.macros import PLACEHOLDER

_BLANK = " \t\r\n"


class QuotingError(Exception):
    """A sentence."""


def split_arguments(text: str) -> list[str]:
    """Both of HTCondor's ways to write arguments. Raises QuotingError."""
    text = text.strip()
    if text.startswith('"'):
        return _split_quoted(_unwrap_quotes(text, "arguments"))
    return [word.replace('\\"', '"') for word in text.split()]


def split_environment(text: str) -> list[tuple[str, str]]:
    """Both of HTCondor's ways to write variables. Raises QuotingError."""
    text = text.strip()
    parts = _split_quoted(_unwrap_quotes(text, "environment")) if text.startswith('"') else text.split(";")
    found = []
    for part in parts:
        key, equals, value = part.strip().partition("=")
        if equals and key.strip():
            found.append((key.strip(), value))
        elif part.strip():
            raise QuotingError(f"environment has {part.strip()[:40]!r}, which is no NAME=VALUE")
    return found


def split_list(text: str) -> list[str]:
    """Files between commas; quotation marks around all of it mean nothing."""
    text = text.strip()
    if len(text) > 1 and text.startswith('"') and text.endswith('"'):
        text = text[1:-1]
    return [part.strip() for part in text.split(",") if part.strip()]


def split_remaps(text: str) -> list[tuple[str, str]]:
    """`"a = b; c = d"`; a backslash keeps = and ; as they are. Raises QuotingError."""
    text = _unwrap_quotes(text.strip(), "transfer_output_remaps") if text.strip().startswith('"') else text
    found = []
    for part in re.split(r"(?<!\\);", text):
        name, equals, target = re.sub(r"\\;", ";", part).partition("=")
        if equals and name.strip() and target.strip():
            found.append((name.strip(), target.strip()))
        elif part.strip():
            raise QuotingError(f"transfer_output_remaps has {part.strip()[:40]!r}, which is no NAME = PATH")
    return found


def unquote_classad(text: str) -> str:
    """The text of a ClassAd string, or the text as it is."""
    text = text.strip()
    if len(text) > 1 and text.startswith('"') and text.endswith('"'):
        return text[1:-1].replace('\\"', '"')
    return text


def _unwrap_quotes(text: str, key: str) -> str:
    """Inside of the double quotes, where two of them mean one."""
    inside = text[1:-1]
    if len(text) < 2 or not text.endswith('"') or '"' in inside.replace('""', ""):
        raise QuotingError(f'{key} has a double quote that does not match; inside of "…" write it as ""')
    return inside.replace('""', '"')


def _split_quoted(text: str) -> list[str]:
    """Blanks separate; single quotes keep together, two of them inside mean one."""
    words: list[str] = []
    current: str | None = None
    quoted, at = False, 0
    while at < len(text):
        letter = text[at]
        if letter == "'" and quoted and text[at + 1 : at + 2] == "'":
            current, at = (current or "") + "'", at + 1
        elif letter == "'":
            quoted, current = not quoted, current or ""
        elif letter in _BLANK and not quoted:
            words += [] if current is None else [current]
            current = None
        else:
            current = (current or "") + letter
        at += 1
    if quoted:
        raise QuotingError("a single quote does not match; inside of '…' write it as ''")
    return words + ([] if current is None else [current])


def quote_for_shell(text: str, variable_name: Callable[[str], str], template_fields: Iterable[str]) -> str:
    """One word of a shell command. Marks become variables; `{field}` is kept from being filled in."""
    made, at = [], 0
    for found in PLACEHOLDER.finditer(text):
        made.append(_quote_literal(text[at : found.start()], template_fields))
        made.append(f'"${variable_name(found.group(1))}"')
        at = found.end()
    return "".join((*made, _quote_literal(text[at:], template_fields))) or "''"


def _quote_literal(text: str, template_fields: Iterable[str]) -> str:
    if not text:
        return ""
    quoted = shlex.quote(text)
    for name in template_fields:
        quoted = quoted.replace(f"{{{name}}}", f"{{''{name}}}")
    return quoted
