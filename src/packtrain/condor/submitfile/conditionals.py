"""`if`, `elif`, `else`, `endif`: which lines count. HTCondor knows simple conditions only, and so do we."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

LANGUAGE = (25, 14, 1)  # the version of HTCondor whose submit language this is

_VERSION = re.compile(r"version\s*(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+){0,2})", re.IGNORECASE)
_DEFINED = re.compile(r"defined\b\s*(\S*)", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)")
_WORDS = {"true": True, "yes": True, "t": True, "false": False, "no": False, "f": False}
_COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
}


def holds(condition: str, is_defined: Callable[[str], bool]) -> bool | None:
    """The condition with its macros filled in; None: not one that HTCondor understands."""
    text = condition.strip()
    if text.startswith("!"):
        inner = holds(text[1:], is_defined)
        return None if inner is None else not inner
    version, defined = _VERSION.fullmatch(text), _DEFINED.fullmatch(text)
    if version:
        wanted = tuple(map(int, version.group(2).split(".")))
        return _COMPARE[version.group(1)](LANGUAGE[: len(wanted)], wanted)
    if defined:
        return is_defined(defined.group(1))
    if _NUMBER.fullmatch(text):
        return float(text) != 0
    return _WORDS.get(text.lower())


@dataclass
class _Level:
    around: bool  # whether the lines around it count
    taken: bool  # whether one of its branches was chosen
    open: bool  # whether this branch counts
    number: int  # line of its `if`
    last: bool = False  # `else` was seen


@dataclass
class Branches:
    """The nesting at one place of a file. What is out of order is told by a sentence."""

    levels: list[_Level] = field(default_factory=list)

    @property
    def counting(self) -> bool:
        return not self.levels or (self.levels[-1].around and self.levels[-1].open)

    @property
    def wants_condition(self) -> bool:
        """Whether an `elif` here has to be looked at."""
        return bool(self.levels) and self.levels[-1].around and not self.levels[-1].taken

    def enter(self, found: bool, number: int) -> None:
        self.levels.append(_Level(self.counting, found, found, number))

    def turn(self, found: bool, last: bool) -> str:
        """`elif` and `else`."""
        if not self.levels or self.levels[-1].last:
            return "there is no `if` that this belongs to"
        level = self.levels[-1]
        level.open, level.last = found and not level.taken, last
        level.taken = level.taken or found
        return ""

    def leave(self) -> str:
        if not self.levels:
            return "there is no `if` that this ends"
        self.levels.pop()
        return ""
