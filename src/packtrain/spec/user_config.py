"""A person's own settings: ~/.config/packtrain/config.yaml, or the file that $PACKTRAIN_CONFIG names. All optional."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field, ValidationError

from packtrain.errors import UsageError
from packtrain.spec import validation_messages, yaml_loader
from packtrain.spec.diagnostics import Report
from packtrain.spec.model_walk import walk
from packtrain.spec.models.field_types import Line, Model, Positive, Seconds, Str


class HtcondorSettings(Model):
    """How runs go to an HTCondor pool."""

    project: Str = ""
    """The project that the jobs belong to (+ProjectName)."""
    duration: Str = ""
    """The duration category (+JobDurationCategory), e.g. Long; by default from limits.wallTime, if that is given."""
    lease: Seconds = 6 * 3600.0
    """How long a job goes on without contact to the access point."""
    max_jobs: Positive = 5000
    """How many jobs of a run are in the queue at once; more follow as these end."""
    max_idle: Positive = 1000
    """How many of them may be waiting for a machine."""
    starts: Positive = 10
    """How often the pool may start one attempt again before it is looked into."""
    lines: dict[Str, Line] = Field(default_factory=dict)
    """More lines for every submit file; those of a workflow's `htcondor` count more."""


class Settings(Model):
    """The whole of the file."""

    htcondor: HtcondorSettings = HtcondorSettings()
    """How runs go to an HTCondor pool."""


def settings_path() -> Path:
    named = os.environ.get("PACKTRAIN_CONFIG")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "packtrain" / "config.yaml"


def load_settings(path: Path | None = None) -> Settings:
    """The settings; without a file, the defaults. Raises UsageError with the first problem and its place."""
    where = path or settings_path()
    try:
        text = where.read_bytes()
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise UsageError(f"the settings {where} cannot be read: {error.strerror}") from None
    if not any(line.split(b"#")[0].strip() for line in text.splitlines()):
        return Settings()
    document = yaml_loader.read(text, str(where))
    report = Report(document.origin)
    report.extend(document.problems)
    try:
        made = Settings.model_validate(document.value or {}) if not report.failed else Settings()
    except ValidationError as error:
        models = {node.path: node.model for node in walk(Settings, document.value)}
        validation_messages.report_all(error.errors(), models, report)
    if report.failed:
        raise UsageError(str(next(problem for problem in report.problems if problem.is_error)))
    return made
