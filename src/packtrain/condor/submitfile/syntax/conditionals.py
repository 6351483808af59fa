"""Evaluates `if`, `elif`, `else` and `endif`. Like HTCondor, it supports only simple conditions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

CONDOR_VERSION = (25, 14, 1)  # the version of HTCondor whose submit language is implemented

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
    """Evaluate a condition whose macros are expanded. Returns None if HTCondor would not accept it."""
    text = condition.strip()
    if text.startswith("!"):
        inner = evaluate_condition(text[1:], is_defined)
        return None if inner is None else not inner
    version, defined = _VERSION.fullmatch(text), _DEFINED.fullmatch(text)
    if version:
        operand = tuple(map(int, version.group(2).split(".")))
        return _COMPARATORS[version.group(1)](CONDOR_VERSION[: len(operand)], operand)
    if defined:
        return is_defined(defined.group(1))
    if _NUMBER.fullmatch(text):
        return float(text) != 0
    return _BOOLEANS.get(text.lower())


@dataclass
class _IfBlock:
    is_outer_active: bool  # whether the lines around it are active
    is_branch_taken: bool  # whether one of its branches was active so far
    is_branch_active: bool  # whether the current branch is active
    line_number: int  # of its `if`
    has_else: bool = False  # whether the current branch is `else`


@dataclass
class IfStack:
    """The open `if` blocks at one line of a file. Methods return an error message, or "" if there is no error."""

    blocks: list[_IfBlock] = field(default_factory=list)

    @property
    def is_active(self) -> bool:
        """Whether the lines that follow are active."""
        return not self.blocks or (self.blocks[-1].is_outer_active and self.blocks[-1].is_branch_active)

    @property
    def needs_condition(self) -> bool:
        """Whether the condition of an `elif` at this line has to be evaluated."""
        return bool(self.blocks) and self.blocks[-1].is_outer_active and not self.blocks[-1].is_branch_taken

    def open_if(self, condition: bool, line_number: int) -> None:
        """Begin an `if` block."""
        self.blocks.append(_IfBlock(self.is_active, condition, condition, line_number))

    def next_branch(self, condition: bool, is_else: bool) -> str:
        """Begin an `elif` or `else` branch."""
        if not self.blocks or self.blocks[-1].has_else:
            return "there is no matching `if`"
        block = self.blocks[-1]
        block.is_branch_active, block.has_else = condition and not block.is_branch_taken, is_else
        block.is_branch_taken = block.is_branch_taken or condition
        return ""

    def close_if(self) -> str:
        """End an `if` block."""
        if not self.blocks:
            return "there is no matching `if`"
        self.blocks.pop()
        return ""
