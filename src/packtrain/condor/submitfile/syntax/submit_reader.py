"""Parses a submit file to a description: the value of each command at the `queue` statement, and its line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from packtrain.condor.submitfile.syntax import macros
from packtrain.condor.submitfile.syntax import queue_statement as queue
from packtrain.condor.submitfile.syntax.conditionals import IfStack, evaluate_condition
from packtrain.condor.submitfile.syntax.context import SubmitContext
from packtrain.condor.submitfile.syntax.logical_lines import LogicalLine, LogicalLines
from packtrain.condor.submitfile.syntax.macros import MacroError
from packtrain.spec.diagnostics import ERROR, WARNING, Diagnostic, did_you_mean

MAX_SUBMIT_FILE_BYTES = 1_000_000

_STATEMENT = re.compile(
    r"(queue|if|elif|else|endif|include|use|warning|error)\b(?!\s*=)\s*(.*)", re.IGNORECASE | re.DOTALL
)
_ASSIGNMENT = re.compile(r"([+-]?)([A-Za-z_][A-Za-z0-9_./]*)\s*(\+?)=[ \t]*(.*)", re.DOTALL)
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_INCLUDE = re.compile(r"(ifexist\s+|command\s+)?(?:into\s+\S+\s*)?:\s*(.*)", re.IGNORECASE)
_MAX_INCLUDE_DEPTH = 8


@dataclass(frozen=True)
class SubmitCommand:
    """One command of a submit file."""

    key: str  # as written; job attributes as +NAME
    value: str  # macros are not expanded
    line: int


@dataclass
class SubmitDescription:
    """The commands of a submit file, by their key in lower case. `+Attr` and `MY.Attr` are both `+attr`."""

    name: str
    commands: dict[str, SubmitCommand] = field(default_factory=dict)
    queue: queue.QueueStatement | None = None
    problems: list[Diagnostic] = field(default_factory=list)
    referenced_names: set[str] = field(default_factory=set)  # macros in conditions, includes and `queue`

    def add_problem(self, line: int, severity: str, message: str, hint: str = "") -> None:
        """Add a diagnostic at a line of the file."""
        self.problems.append(Diagnostic(self.name, line, 1, severity, message, hint))

    def raw_value(self, name: str) -> str | None:
        """Return the value of a command before macro expansion, or None if it is not set."""
        command = self.commands.get(name)
        return command.value if command else None


def parse_submit_description(
    text: str, name: str, context: SubmitContext, known_commands: Iterable[str] = ()
) -> SubmitDescription:
    """Parse the text of a submit file. Never raises: errors become problems of the description.

    Args:
        text: The text of the submit file.
        name: Its file name in diagnostics.
        context: Gives access to included files and to variables.
        known_commands: Commands that should be set only once; setting one again gives a warning.
    """
    description = SubmitDescription(name)
    unprintable = _UNPRINTABLE.search(text)
    if unprintable:
        line = text.count("\n", 0, unprintable.start()) + 1
        description.add_problem(line, ERROR, f"a submit file cannot contain the character {unprintable.group()!r}")
        return description
    if len(text) > MAX_SUBMIT_FILE_BYTES:
        message = f"the file has {len(text)} characters; a submit file has at most {MAX_SUBMIT_FILE_BYTES}"
        description.add_problem(1, ERROR, message)
        return description
    _DescriptionParser(description, context, frozenset(known_commands)).parse_text(text)
    if description.queue is None and not any(problem.is_error for problem in description.problems):
        message = "there is no `queue` statement, so there is no job"
        description.add_problem(text.count("\n") + 1, ERROR, message, "end with `queue`")
    return description


class _DescriptionParser:
    def __init__(
        self,
        description: SubmitDescription,
        context: SubmitContext,
        known_commands: frozenset[str],
        depth: int = 0,
        include_line: int = 0,
    ) -> None:
        """Create a parser. Problems of an included file are reported at `include_line`; 0 is the main file."""
        self._description, self._context, self._known_commands = description, context, known_commands
        self._depth, self._include_line = depth, include_line
        self._if_stack = IfStack()

    def parse_text(self, text: str) -> None:
        lines = LogicalLines(text)
        for line in lines:
            line = LogicalLine(self._include_line or line.line_number, line.text)
            statement = _STATEMENT.match(line.text)
            keyword = statement.group(1).lower() if statement else ""
            rest = statement.group(2).strip() if statement else ""
            if keyword in ("if", "elif", "else", "endif"):
                self._parse_conditional(keyword, rest, line)
            elif self._if_stack.is_active:
                self._parse_statement(keyword, rest, line, lines)
        for block in self._if_stack.blocks:
            self._add_problem(block.line_number, "this `if` has no `endif`")

    def _add_problem(self, line: int, message: str, hint: str = "", severity: str = ERROR) -> None:
        self._description.add_problem(line, severity, message, hint)

    def _expand(self, text: str, line: int) -> str:
        self._description.referenced_names |= macros.referenced_names(text)
        try:
            return macros.expand(text, self._description.raw_value, self._context.environment)
        except MacroError as error:
            self._add_problem(line, str(error))
            return ""

    # Conditionals

    def _parse_conditional(self, keyword: str, rest: str, line: LogicalLine) -> None:
        error = ""
        if keyword == "if":
            self._if_stack.open_if(self._if_stack.is_active and self._evaluate(rest, line), line.line_number)
        elif keyword == "elif":
            condition = self._if_stack.needs_condition and self._evaluate(rest, line)
            error = self._if_stack.next_branch(condition, is_else=False)
        elif keyword == "else":
            error = self._if_stack.next_branch(True, is_else=True)
        else:
            error = self._if_stack.close_if()
        if error:
            self._add_problem(line.line_number, error)

    def _evaluate(self, condition: str, line: LogicalLine) -> bool:
        expanded = self._expand(condition, line.line_number)
        result = evaluate_condition(expanded, lambda name: bool(self._description.raw_value(name.lower())))
        if result is None:
            message = f"HTCondor does not support the condition {condition[:60]!r}"
            self._add_problem(line.line_number, message, "write `defined NAME`, `version >= 24.0`, true or false")
        self._description.referenced_names |= {
            name.lower() for name in re.findall(r"defined\s+(\S+)", condition, re.IGNORECASE)
        }
        return bool(result)

    # Statements in active lines

    def _parse_statement(self, keyword: str, rest: str, line: LogicalLine, lines: LogicalLines) -> None:
        if keyword == "queue":
            self._parse_queue(rest, line, lines)
        elif self._description.queue is not None:
            if not keyword:
                self._add_problem(line.line_number, "this line is after `queue`, so it has no effect")
        elif keyword == "include":
            self._parse_include(rest, line)
        elif keyword == "warning":
            self._add_problem(line.line_number, f"warning of the submit file: {rest.lstrip(': ')}", severity=WARNING)
        elif keyword == "error":
            self._add_problem(line.line_number, f"error of the submit file: {rest.lstrip(': ')}")
        elif keyword:
            self._add_problem(line.line_number, f"`{keyword}` is not supported")
        else:
            self._parse_assignment(line)

    def _parse_queue(self, rest: str, line: LogicalLine, lines: LogicalLines) -> None:
        if self._description.queue is not None:
            first_line = self._description.queue.line
            message = f"this is a second `queue` (the first is in line {first_line}), but a run has only one"
            self._add_problem(line.line_number, message, "split the file, or list the values: queue x in (a b)")
            return
        try:
            self._description.queue = queue.parse_queue(
                self._expand(rest, line.line_number), line.line_number, self._context, lines.read_block
            )
        except queue.QueueError as error:
            self._add_problem(line.line_number, str(error))
            self._description.queue = queue.QueueStatement(line=line.line_number)

    def _parse_include(self, rest: str, line: LogicalLine) -> None:
        match = _INCLUDE.fullmatch(rest)
        kind = (match.group(1) or "").strip().lower() if match else ""
        path = self._expand(match.group(2), line.line_number).strip() if match else ""
        if not path or kind == "command" or path.endswith("|"):
            message = "`include` of a program's output is not supported" if path else "`include` needs `: FILE`"
            self._add_problem(line.line_number, message, "copy its lines into this file")
        elif self._depth >= _MAX_INCLUDE_DEPTH:
            self._add_problem(line.line_number, f"included files are nested more than {_MAX_INCLUDE_DEPTH} deep")
        else:
            self._include_file(path, kind == "ifexist", line)

    def _include_file(self, path: str, is_optional: bool, line: LogicalLine) -> None:
        try:
            text = self._context.read_text(path)
        except (OSError, ValueError) as error:
            if not is_optional:
                reason = getattr(error, "strerror", None) or error
                self._add_problem(line.line_number, f"the included file {path} cannot be read: {reason}")
            return
        _DescriptionParser(
            self._description, self._context, self._known_commands, self._depth + 1, line.line_number
        ).parse_text(_UNPRINTABLE.sub(" ", text[:MAX_SUBMIT_FILE_BYTES]))

    def _parse_assignment(self, line: LogicalLine) -> None:
        match = _ASSIGNMENT.fullmatch(line.text)
        if not match:
            keyword = line.text.split()[0] if line.text.split() else ""
            hint = did_you_mean(keyword, ("queue", "if", "else", "endif", "include")) if len(keyword) > 2 else ""
            message = f"{line.text.splitlines()[0][:60]!r} is not a valid line"
            self._add_problem(line.line_number, message, hint if "did you mean" in hint else "write KEY = VALUE")
            return
        sign, key, plus, value = match.groups()
        is_attribute = bool(sign) or key.lower().startswith("my.")
        key = f"+{key[3:] if key.lower().startswith('my.') else key}" if is_attribute else key
        if sign == "-":
            self._description.commands.pop(key.lower(), None)
            return
        self._set_command(key, value, line, allow_overwrite=bool(plus))

    def _set_command(self, key: str, value: str, line: LogicalLine, allow_overwrite: bool) -> None:
        name = key.lower()
        previous = self._description.commands.get(name)
        self_reference = re.compile(r"\$\(" + re.escape(name) + r"(?::[^()]*)?\)", re.IGNORECASE)
        is_changed = previous is not None and previous.value != value
        if self_reference.search(value):  # HTCondor expands a reference to the previous value immediately
            value = self_reference.sub(lambda _: previous.value if previous else "", value)
        elif previous and is_changed and not allow_overwrite and self._should_be_set_once(name):
            message = f"{key} is set again; HTCondor ignores line {previous.line}"
            hint = "join both with &&" if name in ("requirements", "require_gpus", "rank") else "remove one of them"
            self._add_problem(line.line_number, message, hint, WARNING)
        self._description.commands[name] = SubmitCommand(key, value, line.line_number)

    def _should_be_set_once(self, name: str) -> bool:
        return name in self._known_commands or name.startswith("+")
