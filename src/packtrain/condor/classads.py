"""ClassAds, HTCondor's form of attributes, as far as the ads of a job and of a transfer plugin need it. Rides along.

    old form    Name = value, one a line        the ads of job and machine, what a plugin says of itself
    new form    [ Name = value; … ], in a row   what a plugin is asked for, and what it answers

Names do not tell upper from lower case (`find`). Expressions are kept as text: nothing is evaluated here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from packtrain.errors import FormatError

ClassAd = dict[str, Any]
"""Values: None (undefined), bool, int, float, str, Expression, list, Ad."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_QUOTED_NAME = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_WHITESPACE = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_REAL = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9]\d*)")
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_MUST_ESCAPE = re.compile(r"[\\\"\x01-\x1f\x7f]")
# What may stand inside of a value without ending it.
_TOKEN = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|//[^\n]*|/\*.*?\*/|[^\[\](){};,\"'/]+|/", re.DOTALL)
_BRACKETS = {"[": "]", "{": "}", "(": ")"}
_UNESCAPE_TABLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a"}
_ESCAPE_TABLE = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_LITERALS = {"true": True, "false": False, "undefined": None}
_MAX_DEPTH = 50


class Expression(str):
    """The text of what is no plain value."""

    __slots__ = ()


def get_attribute(ad: Mapping[str, Any], name: str) -> Any:
    """The value of an attribute; None where there is none."""
    wanted = name.lower()
    return next((value for key, value in ad.items() if key.lower() == wanted), None)


# Reading


def parse_old_classad(text: str) -> ClassAd:
    """Lines that are no attributes are skipped, and those behind an empty one: one ad is read."""
    ad: ClassAd = {}
    for line in text.lstrip().splitlines():
        if not line.strip():
            break
        name, equals, value = line.partition("=")
        if equals and _NAME.fullmatch(name.strip()):
            ad[name.strip()] = _parse_old_value(value.strip())
    return ad


def _parse_old_value(text: str) -> Any:
    """In the old form a backslash says something before a quotation mark only."""
    inner = text[1:-1]
    if len(text) >= 2 and text[0] == text[-1] == '"' and '"' not in inner.replace('\\"', ""):
        return inner.replace('\\"', '"')
    try:
        return _parse_value(text, 0)
    except FormatError:
        return Expression(text)


def parse_new_classads(text: str) -> list[ClassAd]:
    """All ads, one behind the other. Raises FormatError."""
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
    """`text` is from bracket to bracket."""
    if not text.endswith("]") or depth > _MAX_DEPTH:
        raise FormatError(f"a ClassAd has no end, or is nested too deeply: {text[:40]!r}")
    ad: ClassAd = {}
    inside = text[1:-1]
    for part in _split_parts(inside, ";"):
        name, position = _parse_name(part)
        position = _skip_whitespace(part, position)
        if part[position : position + 1] != "=":
            raise FormatError(f"not an attribute: {part[:40]!r}")
        ad[name] = _parse_value(part[position + 1 :].strip(), depth + 1)
    return ad


def _parse_name(part: str) -> tuple[str, int]:
    quoted = _QUOTED_NAME.match(part)
    found = quoted or _NAME.match(part)
    if found is None:
        raise FormatError(f"not the name of an attribute: {part[:40]!r}")
    return _unescape(quoted.group(1)) if quoted else found.group(), found.end()


def _split_parts(text: str, separator: str) -> Iterator[str]:
    position = _skip_whitespace(text, 0)
    while position < len(text):
        end = _find_end(text, position, separator)
        if end > position:
            yield text[position:end]
        if end < len(text) and text[end] != separator:
            raise FormatError(f"a bracket too many: {text[position : end + 1][-40:]!r}")
        position = _skip_whitespace(text, end + 1)


def _find_end(text: str, position: int, separator: str) -> int:
    """Where the value ends that begins here: at a separator or a bracket that is not its own. Without a separator: the
    end of the brackets that it begins with."""
    awaited: list[str] = []
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
        raise FormatError(f"brackets that do not match: {text[:40]!r}")
    return position


def _skip_token(text: str, position: int) -> int:
    found = _TOKEN.match(text, position)
    if found is None:
        raise FormatError(f"a text without an end: {text[position : position + 40]!r}")
    return found.end()


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
    """Whether its first bracket is closed by its last."""
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
    said = match.group(1)
    return chr(int(said, 8)) if said.isdigit() and int(said[:1]) < 8 else _UNESCAPE_TABLE.get(said, said)


def _skip_whitespace(text: str, position: int) -> int:
    found = _WHITESPACE.match(text, position)
    assert found is not None  # it matches nothing, too
    return found.end()


# Writing


def format_new_classad(ad: Mapping[str, Any]) -> str:
    return "[ " + "; ".join(f"{_format_name(name)} = {_format_value(value)}" for name, value in ad.items()) + " ]"


def format_old_classad(ad: Mapping[str, Any]) -> str:
    """Only plain values, of one line each."""
    return "".join(f"{name} = {format_old_value(value)}\n" for name, value in ad.items())


def format_old_value(value: Any) -> str:
    """As `set_job_attr` of Chirp takes it. Lines become one: the old form has no sign for their end."""
    if type(value) is str:
        line = re.sub(r"[\x00-\x1f\x7f]+", " ", value)
        line = line + " " if line.endswith("\\") else line  # else the quotation mark behind it would belong to it
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
