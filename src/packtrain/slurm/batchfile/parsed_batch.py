"""The directives of a batch script by name. Problems are reported at their lines."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from packtrain.slurm.batchfile.directives import Directive
from packtrain.spec.diagnostics import ERROR, WARNING, DiagnosticReport, Position

T = TypeVar("T")


@dataclass(frozen=True)
class BatchContext:
    """Where a batch script is submitted.

    Attributes:
        submit_dir: The folder in which packtrain is called; the script runs there, as with sbatch.
        script_dir: The folder of the script.
        environ: The variables of the user's shell.
    """

    submit_dir: Path
    script_dir: Path
    environ: Mapping[str, str] = field(default_factory=dict)


class ParsedBatch:
    """A batch script.

    Args:
        name: The file name in diagnostics.
        text: Its content.
        directives: Its options, in order; the last one of a name counts.
        report: Receives problems.
        context: Where it is submitted.
    """

    def __init__(
        self, name: str, text: str, directives: Sequence[Directive], report: DiagnosticReport, context: BatchContext
    ) -> None:
        self.name, self.text, self.report, self.context = name, text, report, context
        self._directives: dict[str, Directive] = {}
        for directive in directives:
            self._directives.pop(directive.name, None)
            self._directives[directive.name] = directive

    @property
    def script_name(self) -> str:
        return Path(self.name).name

    @property
    def options(self) -> Mapping[str, str]:
        """The options by long name, in the order in which sbatch applies them."""
        return {name: directive.value for name, directive in self._directives.items()}

    @property
    def work_dir(self) -> str:
        """The folder in which the script runs."""
        return os.path.normpath(self.context.submit_dir / self.value("chdir"))

    def has(self, name: str) -> bool:
        return name in self._directives

    def value(self, name: str) -> str:
        """Return the argument of an option, or ""."""
        return self._directives[name].value if self.has(name) else ""

    def parse(self, name: str, parser: Callable[[str], T], default: T) -> T:
        """Return the parsed argument of an option; the default if it is missing or, with an error, invalid."""
        if not self.has(name):
            return default
        try:
            return parser(self.value(name))
        except ValueError as error:
            self.error(name, f"--{name} {error}")
            return default

    def position(self, *names: str) -> Position:
        """Return the position of the first of these options that the script has, or the first line."""
        return next((Position(self._directives[name].line) for name in names if self.has(name)), Position(1))

    def error(self, name: str, message: str, hint: str = "") -> None:
        self.report.add(self.position(name), ERROR, message, hint)

    def warning(self, name: str, message: str, hint: str = "") -> None:
        self.report.add(self.position(name), WARNING, message, hint)
