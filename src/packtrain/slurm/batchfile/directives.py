"""Reads and writes `#SBATCH` lines as sbatch does, which tests compare with the installed versions.

Spaces separate arguments; `"` and `'` group them, also inside an argument; a backslash takes the next character as it
is, also inside quotes; `#` outside of quotes starts a comment. Lines count up to the first one that is neither empty
nor a comment. The arguments are then read as on a command line.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from packtrain.slurm.batchfile.option_table import OPTIONS, SHORT_OPTIONS, VARIABLES, Argument, find_options
from packtrain.spec.diagnostics import ERROR, WARNING, DiagnosticReport, Position, did_you_mean

PREFIX = "#SBATCH"
_FOREIGN_PREFIXES = ("#PBS", "#BSUB")
_WHITESPACE = " \t\n\v\f\r"
_HET_JOB = re.compile(r"\s*(het|pack)job\b")


@dataclass(frozen=True)
class Directive:
    """One option of a script.

    Attributes:
        name: The long name, a key of `option_table.OPTIONS`, or a name that packtrain does not know.
        value: The argument; "" without one.
        line: Where it is.
    """

    name: str
    value: str
    line: int


class DirectiveError(Exception):
    """A line that sbatch would reject."""


def read_directives(text: str, report: DiagnosticReport) -> list[Directive]:
    """Return the options of a script in their order. Problems are reported at their lines."""
    arguments: list[tuple[str, int]] = []
    for number, line in _header_lines(text):
        if line.startswith(PREFIX):
            rest = line[len(PREFIX) :]
            if _HET_JOB.match(rest):
                report.add(Position(number), ERROR, "heterogeneous jobs are not supported", "use sbatch")
                continue
            if re.search(r"(?<!\\)(\\\\)*\\\s", rest):
                message = "a space after a backslash separates options in Slurm 22.05, but not in newer versions"
                report.add(Position(number), WARNING, message, "use quotes")
            try:
                arguments += [(argument, number) for argument in split_arguments(rest)]
            except DirectiveError as error:
                report.add(Position(number), ERROR, str(error))
        elif line.startswith(_FOREIGN_PREFIXES):
            message = f"{line.split()[0]} lines are not supported, although sbatch reads some of them"
            report.add(Position(number), WARNING, message, "write #SBATCH lines")
    return list(_parse_arguments(arguments, report))


def read_variables(environ: Mapping[str, str]) -> list[Directive]:
    """Return the options that environment variables set."""
    return [Directive(name, environ[variable], 1) for variable, name in VARIABLES.items() if environ.get(variable)]


def _header_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the comments before the first command, with their numbers."""
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.lstrip(_WHITESPACE)
        if stripped and not stripped.startswith("#"):
            return
        yield number, line


def split_arguments(text: str) -> list[str]:
    """Return the arguments of a line after `#SBATCH`. An empty argument ends the line, as in sbatch.

    Raises DirectiveError.
    """
    arguments: list[str] = []
    position = 0
    while True:
        while position < len(text) and text[position] in _WHITESPACE:
            position += 1
        if text[position : position + 1] == ":":
            raise DirectiveError("`:` would begin another component of a heterogeneous job")
        argument, position = _read_argument(text, position)
        if not argument:
            return arguments
        arguments.append(argument)


def _read_argument(text: str, position: int) -> tuple[str, int]:
    """Return the next argument and the position after it."""
    characters: list[str] = []
    quote, is_escaped = "", False
    while position < len(text):
        character = text[position]
        if is_escaped:
            characters.append(character)
            is_escaped = False
        elif character == "\\":
            is_escaped = True
        elif quote:
            if character == quote:
                quote = ""
            else:
                characters.append(character)
        elif character in "\"'":
            quote = character
        elif character in _WHITESPACE:
            break
        elif character == "#":
            position = len(text)
            break
        else:
            characters.append(character)
        position += 1
    if quote:
        raise DirectiveError(f"the quote {quote} is not closed")
    return "".join(characters), position


def _parse_arguments(arguments: list[tuple[str, int]], report: DiagnosticReport) -> Iterator[Directive]:
    """Read arguments as getopt does: `--name=value`, `--name value`, `-nVALUE`, `-n VALUE`, several flags as `-HQ`."""
    rest = deque(arguments)
    while rest:
        argument, line = rest.popleft()
        if argument.startswith("--") and argument != "--":
            yield from _parse_long(argument[2:], line, rest, report)
        elif argument.startswith("-") and argument not in ("-", "--"):
            yield from _parse_short(argument[1:], line, rest, report)
        elif argument != "--":
            hint = "put quotes around a value with spaces"
            report.add(Position(line), ERROR, f"{argument[:60]!r} is not an option", hint)


def _parse_long(text: str, line: int, rest: deque[tuple[str, int]], report: DiagnosticReport) -> Iterator[Directive]:
    name, equals, value = text.partition("=")
    matches = find_options(name)
    if len(matches) > 1:
        names = ", ".join(f"--{option.name}" for option in matches)
        report.add(Position(line), ERROR, f"--{name} is ambiguous: {names}")
        return
    if not matches:
        suggestion = did_you_mean(name, OPTIONS)
        message = f"--{name[:60]} is passed to sbatch, which knows it only if a plugin of the site defines it"
        report.add(Position(line), WARNING, message, suggestion)
        if not re.fullmatch(r"[a-z][a-z0-9-]+", name):
            report.add(Position(line), ERROR, f"--{name[:60]} is not the name of an option")
        elif not equals and rest and not rest[0][0].startswith("-"):
            yield from _with_next_argument(name, line, rest, report)
        else:
            yield Directive(name, value, line)
        return
    (option,) = matches
    if equals and option.argument is Argument.NONE:
        report.add(Position(line), ERROR, f"--{option.name} has no argument")
    elif not equals and option.argument is Argument.REQUIRED:
        yield from _with_next_argument(option.name, line, rest, report)
    else:
        yield Directive(option.name, value, line)


def _parse_short(
    letters: str, line: int, rest: deque[tuple[str, int]], report: DiagnosticReport
) -> Iterator[Directive]:
    for index, letter in enumerate(letters):
        name = SHORT_OPTIONS.get(letter)
        if name is None:
            report.add(Position(line), ERROR, f"sbatch has no option -{letter}")
            return
        value = letters[index + 1 :]
        if OPTIONS[name].argument is Argument.NONE:
            yield Directive(name, "", line)
        elif value or OPTIONS[name].argument is Argument.OPTIONAL:
            yield Directive(name, value, line)
            return
        else:
            yield from _with_next_argument(name, line, rest, report)
            return


def _with_next_argument(
    name: str, line: int, rest: deque[tuple[str, int]], report: DiagnosticReport
) -> Iterator[Directive]:
    if rest:
        yield Directive(name, rest.popleft()[0], line)
    else:
        report.add(Position(line), ERROR, f"--{name} needs an argument")


def render_directives(options: Mapping[str, str] | Iterable[tuple[str, str]]) -> str:
    """Return `#SBATCH` lines for options by long name. An empty value means an option without an argument."""
    pairs = options.items() if isinstance(options, Mapping) else options
    return "".join(f"{PREFIX} --{name}{_render_value(name, value)}\n" for name, value in pairs)


def _render_value(name: str, value: str) -> str:
    requires_argument = name in OPTIONS and OPTIONS[name].argument is Argument.REQUIRED
    return f"={_quote(value)}" if value or requires_argument else ""


def _quote(value: str) -> str:
    """Quote a value so that sbatch reads it unchanged."""
    escaped = re.sub(r'(["\\])', r"\\\1", value)
    return f'"{escaped}"' if re.search(r"[\s#'\"\\]", value) else value
