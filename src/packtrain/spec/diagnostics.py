"""What is wrong with a workflow file, and where: `file:line:column: what, why; did you mean …`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

ERROR = "error"
WARNING = "warning"

KeyPath = tuple[str | int, ...]
"""The way from the top of a document to a value: keys and list positions."""


@dataclass(frozen=True)
class Position:
    """Where something stands in a file; both count from 1."""

    line: int = 1
    column: int = 1


@dataclass(frozen=True)
class Diagnostic:
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
class SourceMap:
    """The file that a document was read from, and where each of its values and keys stands."""

    filename: str = "workflow"
    value_positions: Mapping[KeyPath, Position] = field(default_factory=dict)
    key_positions: Mapping[KeyPath, Position] = field(default_factory=dict)

    def position(self, path: KeyPath) -> Position:
        """Where the value stands, or the nearest thing above it that does."""
        return self._nearest_position(self.value_positions, path)

    def key_position(self, path: KeyPath) -> Position:
        return self.key_positions[path] if path in self.key_positions else self.position(path)

    @staticmethod
    def _nearest_position(positions: Mapping[KeyPath, Position], path: KeyPath) -> Position:
        above = (path[:length] for length in range(len(path), -1, -1))
        return next((positions[part] for part in above if part in positions), Position())


class DiagnosticReport:
    """Collects the problems of one document."""

    def __init__(self, source_map: SourceMap) -> None:
        self.source_map = source_map
        self._diagnostics: dict[Diagnostic, None] = {}  # ordered, and each problem once

    def error(self, path: KeyPath, message: str, hint: str = "") -> None:
        self.add(self.source_map.position(path), ERROR, message, hint)

    def warning(self, path: KeyPath, message: str, hint: str = "") -> None:
        self.add(self.source_map.position(path), WARNING, message, hint)

    def key_error(self, path: KeyPath, message: str, hint: str = "") -> None:
        """Like `error`, but points at the key instead of its value."""
        self.add(self.source_map.key_position(path), ERROR, message, hint)

    def key_warning(self, path: KeyPath, message: str, hint: str = "") -> None:
        self.add(self.source_map.key_position(path), WARNING, message, hint)

    def add(self, position: Position, severity: str, message: str, hint: str = "") -> None:
        self._diagnostics[
            Diagnostic(self.source_map.filename, position.line, position.column, severity, message, hint)
        ] = None

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        self._diagnostics.update(dict.fromkeys(diagnostics))

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """By place in the file; other files (modules) after this one."""
        return tuple(
            sorted(self._diagnostics, key=lambda p: (p.file != self.source_map.filename, p.file, p.line, p.column))
        )

    @property
    def has_errors(self) -> bool:
        return any(problem.is_error for problem in self._diagnostics)


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """A hint for a misspelt word, or for a few known ones the whole list."""
    choices = sorted(candidates)
    lowered = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    if close:
        return f"did you mean {lowered[close[0]]!r}?"
    return f"known are {', '.join(choices)}" if 0 < len(choices) <= 12 else ""


def format_key_path(path: KeyPath) -> str:
    """A path as people write it: `steps[0].run.command`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.lstrip(".") or "the file"
