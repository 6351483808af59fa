"""A submit description: what each key is set to where `queue` stands, and where in the file that was."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from packtrain.condor.submitfile import macros
from packtrain.condor.submitfile import queue_statement as queue
from packtrain.condor.submitfile.conditionals import Branches, holds
from packtrain.condor.submitfile.context import Around
from packtrain.condor.submitfile.logical_lines import Line, Lines
from packtrain.condor.submitfile.macros import MacroError
from packtrain.spec.diagnostics import ERROR, WARNING, Problem, did_you_mean

MAX_BYTES = 1_000_000

_STATEMENT = re.compile(
    r"(queue|if|elif|else|endif|include|use|warning|error)\b(?!\s*=)\s*(.*)", re.IGNORECASE | re.DOTALL
)
_ASSIGNMENT = re.compile(r"([+-]?)([A-Za-z_][A-Za-z0-9_./]*)\s*(\+?)=[ \t]*(.*)", re.DOTALL)
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_INCLUDE = re.compile(r"(ifexist\s+|command\s+)?(?:into\s+\S+\s*)?:\s*(.*)", re.IGNORECASE)
_DEEPEST_INCLUDE = 8


@dataclass(frozen=True)
class Setting:
    key: str  # as it is written; attributes of the job as +NAME
    value: str  # macros not filled in
    line: int


@dataclass
class Description:
    """`settings` are by their key in lower case; `+Attr` and `MY.Attr` are both `+attr`."""

    name: str
    settings: dict[str, Setting] = field(default_factory=dict)
    queue: queue.Queue | None = None
    problems: list[Problem] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)  # names that conditions, includes and `queue` refer to

    def tell(self, line: int, severity: str, message: str, hint: str = "") -> None:
        self.problems.append(Problem(self.name, line, 1, severity, message, hint))

    def raw(self, name: str) -> str | None:
        found = self.settings.get(name)
        return found.value if found else None


def read(text: str, name: str, around: Around, known: Iterable[str] = ()) -> Description:
    """Never raises for what is in the text. `known` are keys that make sense once only."""
    made = Description(name)
    unprintable = _UNPRINTABLE.search(text)
    if unprintable:
        line = text.count("\n", 0, unprintable.start()) + 1
        made.tell(line, ERROR, f"the character {unprintable.group()!r} does not belong into a submit file")
        return made
    if len(text) > MAX_BYTES:
        made.tell(1, ERROR, f"the file has {len(text)} characters, a submit file at most {MAX_BYTES}")
        return made
    reader = _Reader(made, around, frozenset(known))
    reader.file(text)
    if made.queue is None and not any(problem.is_error for problem in made.problems):
        made.tell(text.count("\n") + 1, ERROR, "there is no `queue` statement, so there is no job", "end with `queue`")
    return made


class _Reader:
    def __init__(self, made: Description, around: Around, known: frozenset[str], depth: int = 0, line: int = 0) -> None:
        """`line` is that of the `include` that led here, for places; 0 in the file itself."""
        self._made, self._around, self._known = made, around, known
        self._depth, self._line = depth, line
        self._branches = Branches()

    def file(self, text: str) -> None:
        lines = Lines(text)
        for line in lines:
            line = Line(self._line or line.number, line.text)
            statement = _STATEMENT.match(line.text)
            word = statement.group(1).lower() if statement else ""
            rest = statement.group(2).strip() if statement else ""
            if word in ("if", "elif", "else", "endif"):
                self._branch(word, rest, line)
            elif self._branches.counting:
                self._count(word, rest, line, lines)
        for level in self._branches.levels:
            self._tell(level.number, "this `if` has no `endif`")

    def _tell(self, line: int, message: str, hint: str = "", severity: str = ERROR) -> None:
        self._made.tell(line, severity, message, hint)

    def _filled(self, text: str, line: int) -> str:
        self._made.asked |= macros.names_in(text)
        try:
            return macros.expand(text, self._made.raw, self._around.environment)
        except MacroError as error:
            self._tell(line, str(error))
            return ""

    # if

    def _branch(self, word: str, rest: str, line: Line) -> None:
        trouble = ""
        if word == "if":
            self._branches.enter(self._branches.counting and self._holds(rest, line), line.number)
        elif word == "elif":
            found = self._branches.wants_condition and self._holds(rest, line)
            trouble = self._branches.turn(found, last=False)
        elif word == "else":
            trouble = self._branches.turn(True, last=True)
        else:
            trouble = self._branches.leave()
        if trouble:
            self._tell(line.number, trouble)

    def _holds(self, condition: str, line: Line) -> bool:
        filled = self._filled(condition, line.number)
        found = holds(filled, lambda name: bool(self._made.raw(name.lower())))
        if found is None:
            message = f"the condition {condition[:60]!r} is not one that HTCondor understands"
            self._tell(line.number, message, "write `defined NAME`, `version >= 24.0`, true or false")
        self._made.asked |= {word.lower() for word in re.findall(r"defined\s+(\S+)", condition, re.IGNORECASE)}
        return bool(found)

    # what counts

    def _count(self, word: str, rest: str, line: Line, lines: Lines) -> None:
        if word == "queue":
            self._queue(rest, line, lines)
        elif self._made.queue is not None:
            if not word:
                self._tell(line.number, "this stands behind `queue` and would count for another `queue` only")
        elif word == "include":
            self._include(rest, line)
        elif word == "warning":
            self._tell(line.number, f"the file says: {rest.lstrip(': ')}", severity=WARNING)
        elif word:
            said = f"the file says: {rest.lstrip(': ')}" if word == "error" else f"`{word}` is not supported"
            self._tell(line.number, said)
        else:
            self._assign(line)

    def _queue(self, rest: str, line: Line, lines: Lines) -> None:
        if self._made.queue is not None:
            message = f"this is a second `queue` (the first is in line {self._made.queue.line}), and a run has one"
            self._tell(line.number, message, "split the file, or list the values: queue x in (a b)")
            return
        try:
            self._made.queue = queue.parse(self._filled(rest, line.number), line.number, self._around, lines.block)
        except queue.QueueError as error:
            self._tell(line.number, str(error))
            self._made.queue = queue.Queue(line=line.number)

    def _include(self, rest: str, line: Line) -> None:
        found = _INCLUDE.fullmatch(rest)
        kind = (found.group(1) or "").strip().lower() if found else ""
        path = self._filled(found.group(2), line.number).strip() if found else ""
        if not path or kind == "command" or path.endswith("|"):
            message = "`include` of a program's output is not supported" if path else "`include` wants `: FILE`"
            self._tell(line.number, message, "write what it says into this file")
        elif self._depth >= _DEEPEST_INCLUDE:
            self._tell(line.number, f"files include files more than {_DEEPEST_INCLUDE} deep")
        else:
            self._read_in(path, kind == "ifexist", line)

    def _read_in(self, path: str, may_be_missing: bool, line: Line) -> None:
        try:
            text = self._around.read(path)
        except (OSError, ValueError) as error:
            if not may_be_missing:
                reason = getattr(error, "strerror", None) or error
                self._tell(line.number, f"the included file {path} cannot be read: {reason}")
            return
        _Reader(self._made, self._around, self._known, self._depth + 1, line.number).file(
            _UNPRINTABLE.sub(" ", text[:MAX_BYTES])
        )

    def _assign(self, line: Line) -> None:
        found = _ASSIGNMENT.fullmatch(line.text)
        if not found:
            word = line.text.split()[0] if line.text.split() else ""
            hint = did_you_mean(word, ("queue", "if", "else", "endif", "include")) if len(word) > 2 else ""
            message = f"{line.text.splitlines()[0][:60]!r} is no line of a submit file"
            self._tell(line.number, message, hint if "did you mean" in hint else "write KEY = VALUE")
            return
        sign, key, plus, value = found.groups()
        is_attribute = bool(sign) or key.lower().startswith("my.")
        key = f"+{key[3:] if key.lower().startswith('my.') else key}" if is_attribute else key
        if sign == "-":
            self._made.settings.pop(key.lower(), None)
            return
        self._set(key, value, line, quiet=bool(plus))

    def _set(self, key: str, value: str, line: Line, quiet: bool) -> None:
        name = key.lower()
        before = self._made.settings.get(name)
        itself = re.compile(r"\$\(" + re.escape(name) + r"(?::[^()]*)?\)", re.IGNORECASE)
        mentions_itself = itself.search(value) is not None
        if mentions_itself:  # HTCondor fills in a key's own former value at once
            value = itself.sub(lambda _: before.value if before else "", value)
        elif before and before.value != value and not quiet and (name in self._known or name.startswith("+")):
            message = f"{key} is set again; HTCondor forgets what line {before.line} says"
            hint = "join both with &&" if name in ("requirements", "require_gpus", "rank") else "remove one of them"
            self._tell(line.number, message, hint, WARNING)
        self._made.settings[name] = Setting(key, value, line.number)
