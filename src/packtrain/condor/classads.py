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

Ad = dict[str, Any]
"""Values: None (undefined), bool, int, float, str, Expression, list, Ad."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_SPACE = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_REAL = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?")
_WHOLE = re.compile(r"[-+]?(?:0|[1-9]\d*)")
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_SPECIAL = re.compile(r"[\\\"\x01-\x1f\x7f]")
# What may stand inside of a value without ending it.
_PIECE = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|//[^\n]*|/\*.*?\*/|[^\[\](){};,\"'/]+|/", re.DOTALL)
_PAIRS = {"[": "]", "{": "}", "(": ")"}
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a"}
_WRITTEN = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_WORDS = {"true": True, "false": False, "undefined": None}
_MOST_NESTED = 50


class Expression(str):
    """The text of what is no plain value."""

    __slots__ = ()


def find(ad: Mapping[str, Any], name: str) -> Any:
    """The value of an attribute; None where there is none."""
    wanted = name.lower()
    return next((value for key, value in ad.items() if key.lower() == wanted), None)


# Reading


def read_old(text: str) -> Ad:
    """Lines that are no attributes are skipped, and those behind an empty one: one ad is read."""
    ad: Ad = {}
    for line in text.lstrip().splitlines():
        if not line.strip():
            break
        name, equals, value = line.partition("=")
        if equals and _NAME.fullmatch(name.strip()):
            ad[name.strip()] = _old_value(value.strip())
    return ad


def _old_value(text: str) -> Any:
    """In the old form a backslash says something before a quotation mark only."""
    inner = text[1:-1]
    if len(text) >= 2 and text[0] == text[-1] == '"' and '"' not in inner.replace('\\"', ""):
        return inner.replace('\\"', '"')
    try:
        return _value(text, 0)
    except FormatError:
        return Expression(text)


def read_new(text: str) -> list[Ad]:
    """All ads, one behind the other. Raises FormatError."""
    ads, position = [], _skip(text, 0)
    while position < len(text):
        if text[position] != "[":
            raise FormatError(f"not a ClassAd: {text[position : position + 40]!r}")
        end = _extent(text, position, "")
        ads.append(_ad(text[position:end].rstrip(), 0))
        position = _skip(text, end)
        if position < len(text) and text[position] in ";,":
            position = _skip(text, position + 1)
    return ads


def _ad(text: str, depth: int) -> Ad:
    """`text` is from bracket to bracket."""
    if not text.endswith("]") or depth > _MOST_NESTED:
        raise FormatError(f"a ClassAd has no end, or is nested too deeply: {text[:40]!r}")
    ad: Ad = {}
    inside = text[1:-1]
    for part in _parts(inside, ";"):
        name, position = _name(part)
        position = _skip(part, position)
        if part[position : position + 1] != "=":
            raise FormatError(f"not an attribute: {part[:40]!r}")
        ad[name] = _value(part[position + 1 :].strip(), depth + 1)
    return ad


def _name(part: str) -> tuple[str, int]:
    quoted = _QUOTED.match(part)
    found = quoted or _NAME.match(part)
    if found is None:
        raise FormatError(f"not the name of an attribute: {part[:40]!r}")
    return _unescaped(quoted.group(1)) if quoted else found.group(), found.end()


def _parts(text: str, separator: str) -> Iterator[str]:
    position = _skip(text, 0)
    while position < len(text):
        end = _extent(text, position, separator)
        if end > position:
            yield text[position:end]
        if end < len(text) and text[end] != separator:
            raise FormatError(f"a bracket too many: {text[position : end + 1][-40:]!r}")
        position = _skip(text, end + 1)


def _extent(text: str, position: int, separator: str) -> int:
    """Where the value ends that begins here: at a separator or a bracket that is not its own. Without a separator: the
    end of the brackets that it begins with."""
    awaited: list[str] = []
    while position < len(text):
        letter = text[position]
        if letter in _PAIRS:
            awaited.append(_PAIRS[letter])
        elif awaited and letter == awaited[-1]:
            awaited.pop()
            if not awaited and not separator:
                return position + 1
        elif letter in "]})" or (not awaited and letter == separator):
            break
        elif letter not in ";,":
            position = _behind_piece(text, position) - 1
        position += 1
    if awaited:
        raise FormatError(f"brackets that do not match: {text[:40]!r}")
    return position


def _behind_piece(text: str, position: int) -> int:
    found = _PIECE.match(text, position)
    if found is None:
        raise FormatError(f"a text without an end: {text[position : position + 40]!r}")
    return found.end()


def _value(text: str, depth: int) -> Any:
    text = text[_skip(text, 0) :].strip()
    if not text:
        raise FormatError("an attribute without a value")
    if text[0] == "[" and _is_one(text):
        return _ad(text, depth)
    if text[0] == "{" and _is_one(text) and depth <= _MOST_NESTED:
        return [_value(part, depth + 1) for part in _parts(text[1:-1], ",")]
    return _scalar(text)


def _is_one(text: str) -> bool:
    """Whether its first bracket is closed by its last."""
    return _extent(text, 0, "") == len(text)


def _scalar(text: str) -> Any:
    string = _STRING.fullmatch(text)
    if string:
        return _unescaped(string.group(1))
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _REAL.fullmatch(text) else Expression(text)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_meant, text) if "\\" in text else text


def _meant(found: re.Match[str]) -> str:
    said = found.group(1)
    return chr(int(said, 8)) if said.isdigit() and int(said[:1]) < 8 else _LETTERS.get(said, said)


def _skip(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    assert found is not None  # it matches nothing, too
    return found.end()


# Writing


def new_form(ad: Mapping[str, Any]) -> str:
    return "[ " + "; ".join(f"{_written_name(name)} = {_written(value)}" for name, value in ad.items()) + " ]"


def old_form(ad: Mapping[str, Any]) -> str:
    """Only plain values, of one line each."""
    return "".join(f"{name} = {old_value(value)}\n" for name, value in ad.items())


def old_value(value: Any) -> str:
    """As `set_job_attr` of Chirp takes it. Lines become one: the old form has no sign for their end."""
    if type(value) is str:
        line = re.sub(r"[\x00-\x1f\x7f]+", " ", value)
        line = line + " " if line.endswith("\\") else line  # else the quotation mark behind it would belong to it
        return '"' + line.replace('"', '\\"') + '"'
    return _written(value)


def _written_name(name: str) -> str:
    if _NAME.fullmatch(name) and "." not in name:
        return name
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _written(value: Any) -> str:
    if value is None or isinstance(value, (bool, Expression)):
        return "undefined" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'real("{value}")'
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return '"' + _SPECIAL.sub(_sign, value.replace("\0", "")) + '"'
    if isinstance(value, Mapping):
        return new_form(value)
    return "{ " + ", ".join(map(_written, value)) + " }" if value else "{ }"


def _sign(found: re.Match[str]) -> str:
    letter = found.group()
    return _WRITTEN.get(letter) or f"\\{ord(letter):03o}"
