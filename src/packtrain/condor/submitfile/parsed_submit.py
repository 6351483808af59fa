"""The commands of a submit file with their values for all jobs."""

from __future__ import annotations

from packtrain.condor.submitfile import commands
from packtrain.condor.submitfile.job_table import JobTable
from packtrain.condor.submitfile.syntax.context import SubmitContext
from packtrain.condor.submitfile.syntax.macros import MacroError
from packtrain.condor.submitfile.syntax.submit_reader import SubmitCommand, SubmitDescription
from packtrain.spec.diagnostics import ERROR, WARNING, DiagnosticReport, Position, SourceMap

_TRUE, _FALSE = ("true", "yes", "t", "1"), ("false", "no", "f", "0", "")


class ParsedSubmit:
    """The commands of a submit file by canonical name. Problems are reported at the line of a command."""

    def __init__(self, description: SubmitDescription, context: SubmitContext) -> None:
        self.description, self.context = description, context
        self.job_table = JobTable(description, context.environment)
        self.report = DiagnosticReport(SourceMap(description.name))
        self._commands = {commands.canonical_name(name): command for name, command in description.commands.items()}

    def has(self, key: str) -> bool:
        """Return whether a command has a value."""
        return key in self._commands and bool(self._commands[key].value.strip())

    def command(self, key: str) -> SubmitCommand | None:
        """Return a command as written."""
        return self._commands.get(key)

    def position(self, key: str) -> Position:
        """Return the position of a command, or the first line."""
        command = self._commands.get(key)
        return Position(command.line if command else 1)

    def raw_value(self, key: str) -> str:
        """Return the value of a command before macro expansion, or ""."""
        command = self._commands.get(key)
        return command.value if command else ""

    def template(self, key: str) -> str:
        """Return the value of a command as a template; report an error if it cannot be expanded."""
        if "$$(" in self.raw_value(key):
            message = f"{key}: $$(…) is not supported, because HTCondor expands it only after it has matched the job"
            self.error(key, message, "the job can read it from the file $_CONDOR_MACHINE_AD")
        try:
            return self.job_table.to_template(self.raw_value(key)).strip()
        except MacroError as error:
            self.error(key, f"{key}: {error}")
            return ""

    def common_value(self, key: str) -> str:
        """Return a value that must be the same for all jobs; report an error if it is not."""
        template = self.template(key)
        if self.job_table.has_different_values(template):
            self.error(key, f"{key} differs from job to job, which is not supported", "use several submit files")
        return self.job_table.values_per_job(template)[0]

    def flag(self, key: str, default: bool) -> bool:
        """Return the value of a command that is true or false."""
        text = self.common_value(key).lower()
        if key not in self._commands or not text:
            return default
        if text not in _TRUE + _FALSE:
            self.error(key, f"{key} should be true or false, but is {text[:40]!r}")
        return text in _TRUE

    def to_workflow_text(self, key: str, template: str) -> str:
        """Return a template in the syntax of workflows; report an error at `key` if that is not possible."""
        try:
            return self.job_table.to_workflow_text(template)
        except MacroError as error:
            self.error(key, f"{key}: {error}")
            return ""

    def error(self, key: str, message: str, hint: str = "") -> None:
        """Report an error at the line of a command."""
        self.report.add(self.position(key), ERROR, message, hint)

    def warning(self, key: str, message: str, hint: str = "") -> None:
        """Report a warning at the line of a command."""
        self.report.add(self.position(key), WARNING, message, hint)
