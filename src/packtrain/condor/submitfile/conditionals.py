"""`if`, `elif`, `else`, `endif`: which lines count. HTCondor knows simple conditions only, and so do we."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

CONDOR_VERSION = (25, 14, 1)  # the version of HTCondor whose submit language this is

_VERSION = re.compile(r"version\s*(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+){0,2})", re.IGNORECASE)
_DEFINED = re.compile(r"defined\b\s*(\S*)", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)")
_BOOLEANS = {"true": True, "yes": True, "t": True, "false": False, "no": False, "f": False}
_COMPARATORS: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
}


def evaluate_condition(condition: str, is_defined: Callable[[str], bool]) -> bool | None:
    """The condition with its macros filled in; None: not one that HTCondor understands."""
    text = condition.strip()
    if text.startswith("!"):
        inner = evaluate_condition(text[1:], is_defined)
        return None if inner is None else not inner
    version, defined = _VERSION.fullmatch(text), _DEFINED.fullmatch(text)
    if version:
        wanted = tuple(map(int, version.group(2).split(".")))
        return _COMPARATORS[version.group(1)](CONDOR_VERSION[: len(wanted)], wanted)
    if defined:
        return is_defined(defined.group(1))
    if _NUMBER.fullmatch(text):
        return float(text) != 0
    return _BOOLEANS.get(text.lower())


@dataclass
class _IfBlock:
    is_outer_active: bool  # whether the lines around it count
    is_branch_taken: bool  # whether one of its branches was chosen
    is_branch_active: bool  # whether this branch counts
    line_number: int  # line of its `if`
    has_else: bool = False  # `else` was seen


@dataclass
class IfStack:
    """The nesting at one place of a file. What is out of order is told by a sentence."""

    blocks: list[_IfBlock] = field(default_factory=list)

    @property
    def is_active(self) -> bool:
        return not self.blocks or (self.blocks[-1].is_outer_active and self.blocks[-1].is_branch_active)

    @property
    def needs_condition(self) -> bool:
        """Whether an `elif` here has to be looked at."""
        return bool(self.blocks) and self.blocks[-1].is_outer_active and not self.blocks[-1].is_branch_taken

    def open_if(self, condition: bool, line_number: int) -> None:
        self.blocks.append(_IfBlock(self.is_active, condition, condition, line_number))

    def next_branch(self, condition: bool, is_else: bool) -> str:
        """`elif` and `else`."""
        if not self.blocks or self.blocks[-1].has_else:
            return "there is no `if` that this belongs to"
        level = self.blocks[-1]
        level.is_branch_active, level.has_else = condition and not level.is_branch_taken, is_else
        level.is_branch_taken = level.is_branch_taken or condition
        return ""

    def close_if(self) -> str:
        if not self.blocks:
            return "there is no `if` that this ends"
        self.blocks.pop()
        return ""
