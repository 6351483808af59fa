"""Errors and warnings about a workflow file, with their positions: `file:line:column: message; hint`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from packtrain.errors import UsageError

ERROR = "error"
WARNING = "warning"

KeyPath = tuple[str | int, ...]
"""The keys and list indexes that lead from the top of a document to a value."""


@dataclass(frozen=True)
class Position:
    """A position in a file; line and column count from 1."""

    line: int = 1
    column: int = 1


@dataclass(frozen=True)
class Diagnostic:
    """One error or warning."""

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


class WorkflowError(UsageError):
    """A workflow that cannot be run.

    Args:
        diagnostics: All errors and warnings; at least one of them is an error.
    """

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(str(diagnostic) for diagnostic in self.diagnostics if diagnostic.is_error))


@dataclass(frozen=True)
class SourceMap:
    """The file of a document and the positions of its values and keys."""

    filename: str = "workflow"
    value_positions: Mapping[KeyPath, Position] = field(default_factory=dict)
    key_positions: Mapping[KeyPath, Position] = field(default_factory=dict)

    def position(self, path: KeyPath) -> Position:
        """Return the position of the value, or of its nearest parent that has one."""
        return self._nearest_position(self.value_positions, path)

    def key_position(self, path: KeyPath) -> Position:
        return self.key_positions[path] if path in self.key_positions else self.position(path)

    def below(self, key: str) -> SourceMap:
        """Return the positions of the values below a key of the top, whose paths begin after it."""
        parts = (
            {path[1:]: position for path, position in positions.items() if path[:1] == (key,)}
            for positions in (self.value_positions, self.key_positions)
        )
        return SourceMap(self.filename, *parts)

    @staticmethod
    def _nearest_position(positions: Mapping[KeyPath, Position], path: KeyPath) -> Position:
        parents = (path[:length] for length in range(len(path), -1, -1))
        return next((positions[parent] for parent in parents if parent in positions), Position())


class DiagnosticReport:
    """Collects the diagnostics of one document."""

    def __init__(self, source_map: SourceMap) -> None:
        self.source_map = source_map
        self._diagnostics: dict[Diagnostic, None] = {}  # ordered, without duplicates

    def error(self, path: KeyPath, message: str, hint: str = "") -> None:
        self.add(self.source_map.position(path), ERROR, message, hint)

    def warning(self, path: KeyPath, message: str, hint: str = "") -> None:
        self.add(self.source_map.position(path), WARNING, message, hint)

    def key_error(self, path: KeyPath, message: str, hint: str = "") -> None:
        """Add an error at the position of the key instead of its value."""
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
        """All diagnostics by position; those of other files (modules) come last."""
        return tuple(
            sorted(self._diagnostics, key=lambda d: (d.file != self.source_map.filename, d.file, d.line, d.column))
        )

    @property
    def has_errors(self) -> bool:
        return any(diagnostic.is_error for diagnostic in self._diagnostics)


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return a hint for a misspelt name; if nothing is similar, a short list of all candidates."""
    choices = sorted(candidates)
    lowered = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    if close:
        return f"did you mean {lowered[close[0]]!r}?"
    return f"known are {', '.join(choices)}" if 0 < len(choices) <= 12 else ""


def format_key_path(path: KeyPath) -> str:
    """Return a path as users write it: `steps[0].run.command`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.lstrip(".") or "the file"
