"""What is wrong with a workspace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packtrain.errors import UsageError


@dataclass(frozen=True)
class Problem:
    """One reason why an environment cannot be used, and the command or change that helps."""

    message: str
    hint: str = ""


class PixiError(UsageError):
    """An environment cannot be used. One problem, or several of the same kind."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(f"{p.message}; {p.hint}" if p.hint else p.message for p in problems))
        self.problems: Sequence[Problem] = problems


def missing_extra(error: ImportError) -> PixiError:
    """Return the error for a machine without the extra."""
    return PixiError(Problem(f"Pixi environments need the package {error.name}", "run `pip install 'packtrain[pixi]'`"))
