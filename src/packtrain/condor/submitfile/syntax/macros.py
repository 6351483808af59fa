"""Expands $(NAME), $(NAME:default) and $FUNCTION(…) in a text, as HTCondor does.

Values that are known only when a job runs ($(Process), $(Cluster), the variables of `queue`) can be expanded to
placeholders: a name between two characters that no text file contains. A function of a placeholder cannot be evaluated
and raises PerJobValueError.
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
"""Returns the raw value of a name in lower case, or None."""


class MacroError(Exception):
    """A macro cannot be expanded. The message says which one and why."""


class PerJobValueError(MacroError):
    """A function has an argument that differs from job to job."""


def placeholder(name: str) -> str:
    """Return the placeholder of a name."""
    return f"{PLACEHOLDER_OPEN}{name}{PLACEHOLDER_CLOSE}"


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders that have a value, and leave the others."""
    return PLACEHOLDER.sub(lambda match: values.get(match.group(1), match.group()), text)


def expand(text: str, lookup: Lookup, environment: Mapping[str, str], depth: int = 0) -> str:
    """Expand all macros of a text. Raises MacroError.

    Args:
        text: The text.
        lookup: Returns the values of macros.
        environment: The variables for $ENV(…).
        depth: Nesting of macros so far.
    """
    if depth > _MAX_DEPTH:
        raise MacroError("a macro refers to itself")
    parts, position = [], 0
    for start, end, function, body in _find_macros(text):
        parts.append(text[position:start])
        if function == "$":
            parts.append(text[start:end])  # HTCondor expands $$(X) when it has matched the job
        elif not function:
            parts.append(_expand_variable(text[start:end], body, lookup, environment, depth))
        else:
            parts.append(_expand_function(function, body, lookup, environment, depth))
        position = end
    return "".join((*parts, text[position:]))


def referenced_names(text: str) -> set[str]:
    """Return all names, in lower case, that macros of a text may refer to."""
    first_names = re.findall(r"\$[A-Za-z_]*\(\s*([A-Za-z0-9_.]+)", text)
    function_arguments = " ".join(re.findall(r"\$\w+\(([^)]*)", text))
    return {name.lower() for name in (*first_names, *re.findall(r"[A-Za-z0-9_.]+", function_arguments))}


def _find_macros(text: str) -> list[tuple[int, int, str, str]]:
    """Return the outermost macros: start, end, function name (or "$", or ""), and the text in parentheses."""
    found, position = [], 0
    while start := _MACRO_START.search(text, position):
        end = _find_closing(text, start.end())
        if end < 0:
            break
        found.append((start.start(), end + 1, start.group(1), text[start.end() : end]))
        position = end + 1
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
    is_defined = lookup(arguments[0].lower()) is not None
    text = _expand_argument(arguments[0], lookup, environment, depth) if is_defined or name != "SUBSTR" else ""
    implementation = _FUNCTIONS.get(name)
    if implementation is None and not _FILE_FUNCTION.fullmatch(function):
        raise MacroError(f"${function}(…) is not supported")
    if PLACEHOLDER.search(text):
        raise PerJobValueError(f"${function}({body}) differs from job to job")
    return implementation(text, arguments[1:]) if implementation else file_parts(text, function[1:].lower())


def _expand_argument(argument: str, lookup: Lookup, environment: Mapping[str, str], depth: int) -> str:
    """Return the value of an argument that is the name of a macro, or the argument itself."""
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
        raise MacroError(f"$INT({text}) is not an integer, and packtrain does not evaluate expressions")
    int_format = arguments[0] if arguments else "%d"
    if not re.fullmatch(r"[^%]*%[-+ 0#]{0,3}\d{0,3}[dxXou][^%]*", int_format):
        raise MacroError(f"$INT has the format {int_format!r}, which is not supported")
    return int_format % int(text)


def _substring(text: str, arguments: list[str]) -> str:
    """Return a part of a text by its start and optional length; negative values count from the end."""
    if not 1 <= len(arguments) <= 2 or not all(re.fullmatch(r"-?\d{1,9}", part) for part in arguments):
        raise MacroError("$SUBSTR needs a start and optionally a length")
    start = int(arguments[0]) if int(arguments[0]) >= 0 else max(len(text) + int(arguments[0]), 0)
    length = int(arguments[1]) if len(arguments) == 2 else len(text)
    return text[start : start + length] if length >= 0 else text[start:length]


def file_parts(text: str, parts: str) -> str:
    """Return the parts of a path for $Fpdnx…: folder, last folder, name and suffix, in HTCondor's order."""
    path = text[1:].removesuffix('"') if text.startswith('"') else text
    folder, name = posixpath.split(path)
    stem, suffix = posixpath.splitext(name)
    result = ""
    if not set(parts) & set("pdnx"):
        result = path
    elif "p" in parts:
        result = f"{folder.rstrip('/')}/" if folder else ""
    elif "d" in parts:
        result = f"{posixpath.basename(folder)}/" if folder else ""
    result += (stem if "n" in parts else "") + (suffix if "x" in parts else "")
    if "b" in parts and not set(parts) & set("pdn"):
        result = result.removeprefix(".") if "x" in parts else result
    elif "b" in parts and not set(parts) & set("nx"):
        result = result.removesuffix("/")
    return f'"{result}"' if "q" in parts else result


_FUNCTIONS: dict[str, Callable[[str, list[str]], str]] = {
    "INT": _format_int,
    "STRING": lambda text, more: text,
    "SUBSTR": _substring,
    "BASENAME": lambda text, more: file_parts(text, "nx"),
    "DIRNAME": lambda text, more: file_parts(text, "p"),
}
