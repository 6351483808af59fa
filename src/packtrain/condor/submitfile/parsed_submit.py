"""What a submit file says about its jobs, key by key, with problems told at the key's line."""

from __future__ import annotations

from packtrain.condor.submitfile import commands
from packtrain.condor.submitfile.context import SubmitContext
from packtrain.condor.submitfile.description import SubmitCommand, SubmitDescription
from packtrain.condor.submitfile.job_table import JobTable
from packtrain.condor.submitfile.macros import MacroError
from packtrain.spec.diagnostics import ERROR, WARNING, DiagnosticReport, KeyPath, Position, SourceMap

_TRUE, _FALSE = ("true", "yes", "t", "1"), ("false", "no", "f", "0", "")


class ParsedSubmit:
    def __init__(self, description: SubmitDescription, context: SubmitContext) -> None:
        self.description, self.context = description, context
        self.job_table = JobTable(description, context.environment)
        self.report = DiagnosticReport(SourceMap(description.name))
        self._commands = {commands.canonical_name(name): setting for name, setting in description.commands.items()}

    def has(self, key: str) -> bool:
        return key in self._commands and bool(self._commands[key].value.strip())

    def command(self, key: str) -> SubmitCommand | None:
        return self._commands.get(key)

    def position(self, key: str) -> Position:
        found = self._commands.get(key)
        return Position(found.line if found else 1)

    def raw_value(self, key: str) -> str:
        found = self._commands.get(key)
        return found.value if found else ""

    def template(self, key: str) -> str:
        """With marks for what differs from job to job."""
        if "$$(" in self.raw_value(key):
            message = f"{key}: $$(…) is known only when HTCondor has found a machine, too late for packtrain's plan"
            self.error(key, message, "the job can read it from the file $_CONDOR_MACHINE_AD")
        try:
            return self.job_table.to_template(self.raw_value(key)).strip()
        except MacroError as error:
            self.error(key, f"{key}: {error}")
            return ""

    def common_value(self, key: str) -> str:
        """What has to be the same for all jobs."""
        found = self.template(key)
        if self.job_table.has_different_values(found):
            self.error(key, f"{key} differs from job to job, which packtrain cannot do", "make several submit files")
        return self.job_table.values_per_job(found)[0]

    def flag(self, key: str, default: bool) -> bool:
        text = self.common_value(key).lower()
        if key not in self._commands or not text:
            return default
        if text not in _TRUE + _FALSE:
            self.error(key, f"{key} should be true or false, but is {text[:40]!r}")
        return text in _TRUE

    def to_workflow_text(self, key: str, template: str) -> str:
        try:
            return self.job_table.to_workflow_text(template)
        except MacroError as error:
            self.error(key, f"{key}: {error}")
            return ""

    def error(self, key: str, message: str, hint: str = "") -> None:
        self.report.add(self.position(key), ERROR, message, hint)

    def warning(self, key: str, message: str, hint: str = "") -> None:
        self.report.add(self.position(key), WARNING, message, hint)


class WorkflowDraft:
    """The workflow's document as it grows, with the line of the submit file that each part comes from."""

    def __init__(self) -> None:
        self.document: dict[str, object] = {}
        self.positions: dict[KeyPath, Position] = {}

    def set_value(self, path: tuple[str, ...], value: object, position: Position) -> None:
        """Set a key below mappings, which are made where they are missing."""
        inside = self.document
        for depth, key in enumerate(path[:-1], 1):
            below = inside.setdefault(key, {})
            assert isinstance(below, dict)
            inside = below
            self.positions.setdefault(path[:depth], position)
        inside[path[-1]] = value
        self.positions[path] = position

    def source_map(self, name: str) -> SourceMap:
        return SourceMap(name, self.positions, self.positions)
