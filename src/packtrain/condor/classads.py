"""Parses and formats ClassAds, as far as the ads of jobs and of transfer plugins need it. Sent to workers.

    old form    Name = value, one per line      ads of jobs and machines, and the capabilities of a plugin
    new form    [ Name = value; … ], repeated   requests to a plugin, and its results

Attribute names are case-insensitive (`get_attribute`). Expressions are kept as text and never evaluated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from packtrain.errors import FormatError

ClassAd = dict[str, Any]
"""Values are None (undefined), bool, int, float, str, Expression, list and ClassAd."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_QUOTED_NAME = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_WHITESPACE = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_REAL = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9]\d*)")
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_MUST_ESCAPE = re.compile(r"[\\\"\x01-\x1f\x7f]")
# Tokens inside a value that do not end it.
_TOKEN = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|//[^\n]*|/\*.*?\*/|[^\[\](){};,\"'/]+|/", re.DOTALL)
_BRACKETS = {"[": "]", "{": "}", "(": ")"}
_UNESCAPE_TABLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a"}
_ESCAPE_TABLE = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_LITERALS = {"true": True, "false": False, "undefined": None}
_MAX_DEPTH = 50


class Expression(str):
    """The text of a value that is not a literal."""

    __slots__ = ()


def get_attribute(ad: Mapping[str, Any], name: str) -> Any:
    """Return the value of an attribute, or None if the ad does not have it."""
    wanted = name.lower()
    return next((value for key, value in ad.items() if key.lower() == wanted), None)


# Parsing


def parse_old_classad(text: str) -> ClassAd:
    """Parse one ad in the old form. Lines that are not attributes, and all lines after an empty one, are skipped."""
    ad: ClassAd = {}
    for line in text.lstrip().splitlines():
        if not line.strip():
            break
        name, equals, value = line.partition("=")
        if equals and _NAME.fullmatch(name.strip()):
            ad[name.strip()] = _parse_old_value(value.strip())
    return ad


def _parse_old_value(text: str) -> Any:
    """Parse a value in the old form, where a backslash escapes only a quotation mark."""
    inner = text[1:-1]
    if len(text) >= 2 and text[0] == text[-1] == '"' and '"' not in inner.replace('\\"', ""):
        return inner.replace('\\"', '"')
    try:
        return _parse_value(text, 0)
    except FormatError:
        return Expression(text)


def parse_new_classads(text: str) -> list[ClassAd]:
    """Parse all ads of a text in the new form. Raises FormatError."""
    ads, position = [], _skip_whitespace(text, 0)
    while position < len(text):
        if text[position] != "[":
            raise FormatError(f"not a ClassAd: {text[position : position + 40]!r}")
        end = _find_end(text, position, "")
        ads.append(_parse_ad(text[position:end].rstrip(), 0))
        position = _skip_whitespace(text, end)
        if position < len(text) and text[position] in ";,":
            position = _skip_whitespace(text, position + 1)
    return ads


def _parse_ad(text: str, depth: int) -> ClassAd:
    """Parse an ad, from its opening to its closing bracket."""
    if not text.endswith("]") or depth > _MAX_DEPTH:
        raise FormatError(f"a ClassAd has no closing bracket, or is nested too deeply: {text[:40]!r}")
    ad: ClassAd = {}
    for part in _split_parts(text[1:-1], ";"):
        name, position = _parse_name(part)
        position = _skip_whitespace(part, position)
        if part[position : position + 1] != "=":
            raise FormatError(f"not an attribute: {part[:40]!r}")
        ad[name] = _parse_value(part[position + 1 :].strip(), depth + 1)
    return ad


def _parse_name(part: str) -> tuple[str, int]:
    quoted = _QUOTED_NAME.match(part)
    match = quoted or _NAME.match(part)
    if match is None:
        raise FormatError(f"not an attribute name: {part[:40]!r}")
    return _unescape(quoted.group(1)) if quoted else match.group(), match.end()


def _split_parts(text: str, separator: str) -> Iterator[str]:
    position = _skip_whitespace(text, 0)
    while position < len(text):
        end = _find_end(text, position, separator)
        if end > position:
            yield text[position:end]
        if end < len(text) and text[end] != separator:
            raise FormatError(f"unexpected closing bracket: {text[position : end + 1][-40:]!r}")
        position = _skip_whitespace(text, end + 1)


def _find_end(text: str, position: int, separator: str) -> int:
    """Return where the value at `position` ends: at the separator, or at a closing bracket that is not its own.

    With an empty separator, return the end of the bracketed value at `position`.
    """
    awaited: list[str] = []  # closing brackets
    while position < len(text):
        letter = text[position]
        if letter in _BRACKETS:
            awaited.append(_BRACKETS[letter])
        elif awaited and letter == awaited[-1]:
            awaited.pop()
            if not awaited and not separator:
                return position + 1
        elif letter in "]})" or (not awaited and letter == separator):
            break
        elif letter not in ";,":
            position = _skip_token(text, position) - 1
        position += 1
    if awaited:
        raise FormatError(f"unbalanced brackets: {text[:40]!r}")
    return position


def _skip_token(text: str, position: int) -> int:
    match = _TOKEN.match(text, position)
    if match is None:
        raise FormatError(f"unterminated string: {text[position : position + 40]!r}")
    return match.end()


def _parse_value(text: str, depth: int) -> Any:
    text = text[_skip_whitespace(text, 0) :].strip()
    if not text:
        raise FormatError("an attribute without a value")
    if text[0] == "[" and _is_bracketed(text):
        return _parse_ad(text, depth)
    if text[0] == "{" and _is_bracketed(text) and depth <= _MAX_DEPTH:
        return [_parse_value(part, depth + 1) for part in _split_parts(text[1:-1], ",")]
    return _parse_scalar(text)


def _is_bracketed(text: str) -> bool:
    """Return whether the last bracket of a text closes its first one."""
    return _find_end(text, 0, "") == len(text)


def _parse_scalar(text: str) -> Any:
    string = _STRING.fullmatch(text)
    if string:
        return _unescape(string.group(1))
    if text.lower() in _LITERALS:
        return _LITERALS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _REAL.fullmatch(text) else Expression(text)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_decode_escape, text) if "\\" in text else text


def _decode_escape(match: re.Match[str]) -> str:
    escape = match.group(1)
    return chr(int(escape, 8)) if escape.isdigit() and int(escape[:1]) < 8 else _UNESCAPE_TABLE.get(escape, escape)


def _skip_whitespace(text: str, position: int) -> int:
    match = _WHITESPACE.match(text, position)
    assert match is not None  # the pattern also matches the empty string
    return match.end()


# Formatting


def format_new_classad(ad: Mapping[str, Any]) -> str:
    """Return an ad in the new form."""
    return "[ " + "; ".join(f"{_format_name(name)} = {_format_value(value)}" for name, value in ad.items()) + " ]"


def format_old_classad(ad: Mapping[str, Any]) -> str:
    """Return an ad in the old form, one attribute per line. All values must be literals."""
    return "".join(f"{name} = {format_old_value(value)}\n" for name, value in ad.items())


def format_old_value(value: Any) -> str:
    """Return a value in the old form, as Chirp's `set_job_attr` expects it.

    Newlines and other control characters become spaces, because the old form cannot represent them.
    """
    if type(value) is str:
        line = re.sub(r"[\x00-\x1f\x7f]+", " ", value)
        line = line + " " if line.endswith("\\") else line  # a trailing backslash would escape the quotation mark
        return '"' + line.replace('"', '\\"') + '"'
    return _format_value(value)


def _format_name(name: str) -> str:
    if _NAME.fullmatch(name) and "." not in name:
        return name
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _format_value(value: Any) -> str:
    if value is None or isinstance(value, (bool, Expression)):
        return "undefined" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'real("{value}")'
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return '"' + _MUST_ESCAPE.sub(_encode_escape, value.replace("\0", "")) + '"'
    if isinstance(value, Mapping):
        return format_new_classad(value)
    return "{ " + ", ".join(map(_format_value, value)) + " }" if value else "{ }"


def _encode_escape(match: re.Match[str]) -> str:
    letter = match.group()
    return _ESCAPE_TABLE.get(letter) or f"\\{ord(letter):03o}"
