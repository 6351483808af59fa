"""$(NAME), $(NAME:default) and $FUNCTION(…) in a text, filled in as HTCondor fills them in.

What is known only when a job runs ($(Process), $(Cluster), the variables of `queue`) may be filled in as a mark, a name
between two characters that no text file has; functions of marks cannot be worked out: VariesError.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping

PLACEHOLDER_OPEN, PLACEHOLDER_CLOSE = "\x01", "\x02"
PLACEHOLDER = re.compile(f"{PLACEHOLDER_OPEN}([^{PLACEHOLDER_CLOSE}]*){PLACEHOLDER_CLOSE}")

_MACRO_START = re.compile(r"\$(\$|[A-Za-z_]*)\(")
_NAME = re.compile(r"[A-Za-z0-9_.]+")
_FILE_FUNCTION = re.compile(r"F[fpduwnxbqa]*", re.IGNORECASE)
_MAX_DEPTH = 40

Lookup = Callable[[str], "str | None"]
"""The raw value of a name in lower case, or None."""


class MacroError(Exception):
    """A sentence: what cannot be filled in, and why."""


class PerJobValueError(MacroError):
    """A function of something that differs from job to job."""


def placeholder(name: str) -> str:
    return f"{PLACEHOLDER_OPEN}{name}{PLACEHOLDER_CLOSE}"


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """Put in the values that are known; other marks stay."""
    return PLACEHOLDER.sub(lambda found: values.get(found.group(1), found.group()), text)


def expand(text: str, lookup: Lookup, environment: Mapping[str, str], depth: int = 0) -> str:
    """Raises MacroError."""
    if depth > _MAX_DEPTH:
        raise MacroError("a macro refers to itself")
    made, at = [], 0
    for start, end, function, inside in _find_macros(text):
        made.append(text[at:start])
        if function == "$":
            made.append(text[start:end])  # $$(X) is filled in by HTCondor when the job is matched
        elif not function:
            made.append(_expand_variable(text[start:end], inside, lookup, environment, depth))
        else:
            made.append(_expand_function(function, inside, lookup, environment, depth))
        at = end
    return "".join((*made, text[at:]))


def referenced_names(text: str) -> set[str]:
    """Every name, in lower case, that a macro of this text may refer to."""
    found = {name.lower() for name in re.findall(r"\$[A-Za-z_]*\(\s*([A-Za-z0-9_.]+)", text)}
    return found | {
        name.lower() for name in re.findall(r"[A-Za-z0-9_.]+", " ".join(re.findall(r"\$\w+\(([^)]*)", text)))
    }


def _find_macros(text: str) -> list[tuple[int, int, str, str]]:
    found, at = [], 0
    while start := _MACRO_START.search(text, at):
        end = _find_closing(text, start.end())
        if end < 0:
            break
        found.append((start.start(), end + 1, start.group(1), text[start.end() : end]))
        at = end + 1
    return found


def _find_closing(text: str, start: int) -> int:
    depth = 1
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if not depth:
            return position
    return -1


def _expand_variable(macro: str, body: str, lookup: Lookup, environment: Mapping[str, str], depth: int) -> str:
    name, colon, default = body.partition(":")
    if not _NAME.fullmatch(name):
        return macro
    if name.upper() == "DOLLAR":
        return "$"
    value = lookup(name.lower())
    if value is None or (not value and colon):
        value = default
    return expand(value, lookup, environment, depth + 1)


def _expand_function(function: str, body: str, lookup: Lookup, environment: Mapping[str, str], depth: int) -> str:
    name = function.upper()
    if name == "ENV":
        key, _, default = body.partition(":")
        return environment.get(key.strip(), expand(default, lookup, environment, depth + 1))
    arguments = [part.strip() for part in body.split(",")]
    if name == "CHOICE":
        return _expand_choice([_expand_argument(part, lookup, environment, depth) for part in arguments])
    known = lookup(arguments[0].lower()) is not None
    text = _expand_argument(arguments[0], lookup, environment, depth) if known or name != "SUBSTR" else ""
    work = _FUNCTIONS.get(name)
    if work is None and not _FILE_FUNCTION.fullmatch(function):
        raise MacroError(f"${function}(…) is not understood")
    if PLACEHOLDER.search(text):
        raise PerJobValueError(f"${function}({body}) differs from job to job")
    return work(text, arguments[1:]) if work else file_parts(text, function[1:].lower())


def _expand_argument(argument: str, lookup: Lookup, environment: Mapping[str, str], depth: int) -> str:
    """An argument is a name, or stands for itself."""
    value = lookup(argument.lower()) if _NAME.fullmatch(argument) else None
    return expand(argument if value is None else value, lookup, environment, depth + 1)


def _expand_choice(arguments: list[str]) -> str:
    index, choices = arguments[0], arguments[1:]
    if PLACEHOLDER.search(index):
        raise PerJobValueError("$CHOICE(…) differs from job to job")
    if not index.isdecimal() or int(index) >= len(choices):
        raise MacroError(f"$CHOICE has no choice number {index!r}")
    return choices[int(index)]


def _format_int(text: str, arguments: list[str]) -> str:
    if not re.fullmatch(r"[+-]?\d{1,18}", text):
        raise MacroError(f"$INT({text}) is no plain whole number, and packtrain does not calculate")
    form = arguments[0] if arguments else "%d"
    if not re.fullmatch(r"[^%]*%[-+ 0#]{0,3}\d{0,3}[dxXou][^%]*", form):
        raise MacroError(f"$INT has the format {form!r}, which is not understood")
    return form % int(text)


def _substring(text: str, arguments: list[str]) -> str:
    """Start and, if given, length; both may be negative: from the end."""
    if not 1 <= len(arguments) <= 2 or not all(re.fullmatch(r"-?\d{1,9}", part) for part in arguments):
        raise MacroError("$SUBSTR wants a start and perhaps a length")
    start = int(arguments[0]) if int(arguments[0]) >= 0 else max(len(text) + int(arguments[0]), 0)
    length = int(arguments[1]) if len(arguments) == 2 else len(text)
    return text[start : start + length] if length >= 0 else text[start:length]


def file_parts(text: str, parts: str) -> str:
    """$Fpdnx…: folder, last folder, name and suffix of a path, in the order that HTCondor puts them."""
    path = text[1:].removesuffix('"') if text.startswith('"') else text
    folder, name = posixpath.split(path)
    stem, suffix = posixpath.splitext(name)
    made = ""
    if not set(parts) & set("pdnx"):
        made = path
    elif "p" in parts:
        made = f"{folder.rstrip('/')}/" if folder else ""
    elif "d" in parts:
        made = f"{posixpath.basename(folder)}/" if folder else ""
    made += (stem if "n" in parts else "") + (suffix if "x" in parts else "")
    if "b" in parts and not set(parts) & set("pdn"):
        made = made.removeprefix(".") if "x" in parts else made
    elif "b" in parts and not set(parts) & set("nx"):
        made = made.removesuffix("/")
    return f'"{made}"' if "q" in parts else made


_FUNCTIONS: dict[str, Callable[[str, list[str]], str]] = {
    "INT": _format_int,
    "STRING": lambda text, more: text,
    "SUBSTR": _substring,
    "BASENAME": lambda text, more: file_parts(text, "nx"),
    "DIRNAME": lambda text, more: file_parts(text, "p"),
}
