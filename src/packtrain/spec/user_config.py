"""A person's own settings: ~/.config/packtrain/config.yaml, or the file that $PACKTRAIN_CONFIG names. All optional."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field, ValidationError

from packtrain.errors import UsageError
from packtrain.spec import validation_messages, yaml_loader
from packtrain.spec.diagnostics import DiagnosticReport
from packtrain.spec.model_walk import walk_models
from packtrain.spec.models.field_types import PositiveInt, Seconds, SpecModel, Str, StrOrEmpty


class HtcondorConfig(SpecModel):
    """How runs go to an HTCondor pool."""

    project: Str = ""
    """The project that the jobs belong to (+ProjectName)."""
    duration_category: Str = ""
    """The duration category (+JobDurationCategory), e.g. Long; by default from limits.wallTime, if that is given."""
    job_lease_duration: Seconds = 6 * 3600.0
    """How long a job goes on without contact to the access point."""
    max_jobs: PositiveInt = 5000
    """How many jobs of a run are in the queue at once; more follow as these end."""
    max_idle: PositiveInt = 1000
    """How many of them may be waiting for a machine."""
    max_executions: PositiveInt = 10
    """How often the pool may start one attempt again before it is looked into."""
    submit_commands: dict[Str, StrOrEmpty] = Field(default_factory=dict)
    """More lines for every submit file; those of a workflow's `htcondor` count more."""


class UserConfig(SpecModel):
    """The whole of the file."""

    htcondor: HtcondorConfig = HtcondorConfig()
    """How runs go to an HTCondor pool."""


def user_config_path() -> Path:
    named = os.environ.get("PACKTRAIN_CONFIG")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "packtrain" / "config.yaml"


def load_user_config(path: Path | None = None) -> UserConfig:
    """The settings; without a file, the defaults. Raises UsageError with the first problem and its place."""
    where = path or user_config_path()
    try:
        text = where.read_bytes()
    except FileNotFoundError:
        return UserConfig()
    except OSError as error:
        raise UsageError(f"the settings {where} cannot be read: {error.strerror}") from None
    if not any(line.split(b"#")[0].strip() for line in text.splitlines()):
        return UserConfig()
    document = yaml_loader.parse_yaml(text, str(where))
    report = DiagnosticReport(document.source_map)
    report.extend(document.diagnostics)
    try:
        made = UserConfig.model_validate(document.value or {}) if not report.has_errors else UserConfig()
    except ValidationError as error:
        models = {node.path: node.model for node in walk_models(UserConfig, document.value)}
        validation_messages.report_validation_errors(error.errors(), models, report)
    if report.has_errors:
        raise UsageError(str(next(problem for problem in report.diagnostics if problem.is_error)))
    return made
