"""What is wrong with a workflow file, and where: `file:line:column: what, why; did you mean …`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

ERROR = "error"
WARNING = "warning"

Path = tuple[str | int, ...]
"""The way from the top of a document to a value: keys and list positions."""


@dataclass(frozen=True)
class Place:
    """Where something stands in a file; both count from 1."""

    line: int = 1
    column: int = 1


@dataclass(frozen=True)
class Problem:
    file: str
    line: int
    column: int
    severity: str  # error, warning
    message: str
    hint: str = ""

    def __str__(self) -> str:
        kind = "warning: " if self.severity == WARNING else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.file}:{self.line}:{self.column}: {kind}{self.message}{hint}"

    @property
    def is_error(self) -> bool:
        return self.severity == ERROR

    def to_data(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Origin:
    """The file that a document was read from, and where each of its values and keys stands."""

    name: str = "workflow"
    values: Mapping[Path, Place] = field(default_factory=dict)
    keys: Mapping[Path, Place] = field(default_factory=dict)

    def place(self, path: Path) -> Place:
        """Where the value stands, or the nearest thing above it that does."""
        return self._nearest(self.values, path)

    def key_place(self, path: Path) -> Place:
        return self.keys[path] if path in self.keys else self.place(path)

    @staticmethod
    def _nearest(places: Mapping[Path, Place], path: Path) -> Place:
        above = (path[:length] for length in range(len(path), -1, -1))
        return next((places[part] for part in above if part in places), Place())


class Report:
    """Collects the problems of one document."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self._found: dict[Problem, None] = {}  # ordered, and each problem once

    def error(self, path: Path, message: str, hint: str = "") -> None:
        self.add(self.origin.place(path), ERROR, message, hint)

    def warning(self, path: Path, message: str, hint: str = "") -> None:
        self.add(self.origin.place(path), WARNING, message, hint)

    def key_error(self, path: Path, message: str, hint: str = "") -> None:
        """Like `error`, but points at the key instead of its value."""
        self.add(self.origin.key_place(path), ERROR, message, hint)

    def key_warning(self, path: Path, message: str, hint: str = "") -> None:
        self.add(self.origin.key_place(path), WARNING, message, hint)

    def add(self, place: Place, severity: str, message: str, hint: str = "") -> None:
        self._found[Problem(self.origin.name, place.line, place.column, severity, message, hint)] = None

    def extend(self, problems: Iterable[Problem]) -> None:
        self._found.update(dict.fromkeys(problems))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """By place in the file; other files (modules) after this one."""
        return tuple(sorted(self._found, key=lambda p: (p.file != self.origin.name, p.file, p.line, p.column)))

    @property
    def failed(self) -> bool:
        return any(problem.is_error for problem in self._found)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelt word, or for a few known ones the whole list."""
    choices = sorted(known)
    lowered = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
    if close:
        return f"did you mean {lowered[close[0]]!r}?"
    return f"known are {', '.join(choices)}" if 0 < len(choices) <= 12 else ""


def shown(path: Path) -> str:
    """A path as people write it: `steps[0].run.command`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.lstrip(".") or "the file"
