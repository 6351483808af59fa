"""A submit description: what each key is set to where `queue` stands, and where in the file that was."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from packtrain.condor.submitfile import macros
from packtrain.condor.submitfile import queue_statement as queue
from packtrain.condor.submitfile.conditionals import IfStack, evaluate_condition
from packtrain.condor.submitfile.context import SubmitContext
from packtrain.condor.submitfile.logical_lines import LogicalLine, LogicalLines
from packtrain.condor.submitfile.macros import MacroError
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
    key: str  # as it is written; attributes of the job as +NAME
    value: str  # macros not filled in
    line: int


@dataclass
class SubmitDescription:
    """`settings` are by their key in lower case; `+Attr` and `MY.Attr` are both `+attr`."""

    name: str
    commands: dict[str, SubmitCommand] = field(default_factory=dict)
    queue: queue.QueueStatement | None = None
    problems: list[Diagnostic] = field(default_factory=list)
    referenced_names: set[str] = field(default_factory=set)  # names that conditions, includes and `queue` refer to

    def add_problem(self, line: int, severity: str, message: str, hint: str = "") -> None:
        self.problems.append(Diagnostic(self.name, line, 1, severity, message, hint))

    def raw_value(self, name: str) -> str | None:
        found = self.commands.get(name)
        return found.value if found else None


def parse_submit_description(
    text: str, name: str, context: SubmitContext, known_commands: Iterable[str] = ()
) -> SubmitDescription:
    """Never raises for what is in the text. `known` are keys that make sense once only."""
    made = SubmitDescription(name)
    unprintable = _UNPRINTABLE.search(text)
    if unprintable:
        line = text.count("\n", 0, unprintable.start()) + 1
        made.add_problem(line, ERROR, f"the character {unprintable.group()!r} does not belong into a submit file")
        return made
    if len(text) > MAX_SUBMIT_FILE_BYTES:
        made.add_problem(
            1, ERROR, f"the file has {len(text)} characters, a submit file at most {MAX_SUBMIT_FILE_BYTES}"
        )
        return made
    reader = _DescriptionParser(made, context, frozenset(known_commands))
    reader.parse_text(text)
    if made.queue is None and not any(problem.is_error for problem in made.problems):
        made.add_problem(
            text.count("\n") + 1, ERROR, "there is no `queue` statement, so there is no job", "end with `queue`"
        )
    return made


class _DescriptionParser:
    def __init__(
        self,
        description: SubmitDescription,
        context: SubmitContext,
        known_commands: frozenset[str],
        depth: int = 0,
        include_line: int = 0,
    ) -> None:
        """`line` is that of the `include` that led here, for places; 0 in the file itself."""
        self._description, self._context, self._known_commands = description, context, known_commands
        self._depth, self._include_line = depth, include_line
        self._if_stack = IfStack()

    def parse_text(self, text: str) -> None:
        lines = LogicalLines(text)
        for line in lines:
            line = LogicalLine(self._include_line or line.line_number, line.text)
            statement = _STATEMENT.match(line.text)
            word = statement.group(1).lower() if statement else ""
            rest = statement.group(2).strip() if statement else ""
            if word in ("if", "elif", "else", "endif"):
                self._parse_conditional(word, rest, line)
            elif self._if_stack.is_active:
                self._parse_statement(word, rest, line, lines)
        for level in self._if_stack.blocks:
            self._add_problem(level.line_number, "this `if` has no `endif`")

    def _add_problem(self, line: int, message: str, hint: str = "", severity: str = ERROR) -> None:
        self._description.add_problem(line, severity, message, hint)

    def _expand(self, text: str, line: int) -> str:
        self._description.referenced_names |= macros.referenced_names(text)
        try:
            return macros.expand(text, self._description.raw_value, self._context.environment)
        except MacroError as error:
            self._add_problem(line, str(error))
            return ""

    # if

    def _parse_conditional(self, keyword: str, rest: str, line: LogicalLine) -> None:
        trouble = ""
        if keyword == "if":
            self._if_stack.open_if(self._if_stack.is_active and self._evaluate(rest, line), line.line_number)
        elif keyword == "elif":
            found = self._if_stack.needs_condition and self._evaluate(rest, line)
            trouble = self._if_stack.next_branch(found, is_else=False)
        elif keyword == "else":
            trouble = self._if_stack.next_branch(True, is_else=True)
        else:
            trouble = self._if_stack.close_if()
        if trouble:
            self._add_problem(line.line_number, trouble)

    def _evaluate(self, condition: str, line: LogicalLine) -> bool:
        filled = self._expand(condition, line.line_number)
        found = evaluate_condition(filled, lambda name: bool(self._description.raw_value(name.lower())))
        if found is None:
            message = f"the condition {condition[:60]!r} is not one that HTCondor understands"
            self._add_problem(line.line_number, message, "write `defined NAME`, `version >= 24.0`, true or false")
        self._description.referenced_names |= {
            word.lower() for word in re.findall(r"defined\s+(\S+)", condition, re.IGNORECASE)
        }
        return bool(found)

    # what counts

    def _parse_statement(self, keyword: str, rest: str, line: LogicalLine, lines: LogicalLines) -> None:
        if keyword == "queue":
            self._parse_queue(rest, line, lines)
        elif self._description.queue is not None:
            if not keyword:
                self._add_problem(
                    line.line_number, "this stands behind `queue` and would count for another `queue` only"
                )
        elif keyword == "include":
            self._parse_include(rest, line)
        elif keyword == "warning":
            self._add_problem(line.line_number, f"the file says: {rest.lstrip(': ')}", severity=WARNING)
        elif keyword:
            said = f"the file says: {rest.lstrip(': ')}" if keyword == "error" else f"`{keyword}` is not supported"
            self._add_problem(line.line_number, said)
        else:
            self._parse_assignment(line)

    def _parse_queue(self, rest: str, line: LogicalLine, lines: LogicalLines) -> None:
        if self._description.queue is not None:
            message = (
                f"this is a second `queue` (the first is in line {self._description.queue.line}), and a run has one"
            )
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
        found = _INCLUDE.fullmatch(rest)
        kind = (found.group(1) or "").strip().lower() if found else ""
        path = self._expand(found.group(2), line.line_number).strip() if found else ""
        if not path or kind == "command" or path.endswith("|"):
            message = "`include` of a program's output is not supported" if path else "`include` wants `: FILE`"
            self._add_problem(line.line_number, message, "write what it says into this file")
        elif self._depth >= _MAX_INCLUDE_DEPTH:
            self._add_problem(line.line_number, f"files include files more than {_MAX_INCLUDE_DEPTH} deep")
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
        found = _ASSIGNMENT.fullmatch(line.text)
        if not found:
            word = line.text.split()[0] if line.text.split() else ""
            hint = did_you_mean(word, ("queue", "if", "else", "endif", "include")) if len(word) > 2 else ""
            message = f"{line.text.splitlines()[0][:60]!r} is no line of a submit file"
            self._add_problem(line.line_number, message, hint if "did you mean" in hint else "write KEY = VALUE")
            return
        sign, key, plus, value = found.groups()
        is_attribute = bool(sign) or key.lower().startswith("my.")
        key = f"+{key[3:] if key.lower().startswith('my.') else key}" if is_attribute else key
        if sign == "-":
            self._description.commands.pop(key.lower(), None)
            return
        self._set_command(key, value, line, allow_overwrite=bool(plus))

    def _set_command(self, key: str, value: str, line: LogicalLine, allow_overwrite: bool) -> None:
        name = key.lower()
        before = self._description.commands.get(name)
        itself = re.compile(r"\$\(" + re.escape(name) + r"(?::[^()]*)?\)", re.IGNORECASE)
        mentions_itself = itself.search(value) is not None
        if mentions_itself:  # HTCondor fills in a key's own former value at once
            value = itself.sub(lambda _: before.value if before else "", value)
        elif (
            before
            and before.value != value
            and not allow_overwrite
            and (name in self._known_commands or name.startswith("+"))
        ):
            message = f"{key} is set again; HTCondor forgets what line {before.line} says"
            hint = "join both with &&" if name in ("requirements", "require_gpus", "rank") else "remove one of them"
            self._add_problem(line.line_number, message, hint, WARNING)
        self._description.commands[name] = SubmitCommand(key, value, line.line_number)
