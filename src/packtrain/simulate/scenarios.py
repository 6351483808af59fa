"""Scenarios to compare: plain HTCondor, packtrain with and without checkpoints, or a scenario file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from packtrain.errors import NotFoundError, UsageError
from packtrain.plan import Limits, Recovery
from packtrain.planner.make_plan import plan_limits, plan_recovery
from packtrain.simulate.job_behaviour import AgentBehaviour, JobBehaviour, WrapperBehaviour
from packtrain.spec import validation_messages, yaml_loader
from packtrain.spec.diagnostics import DiagnosticReport
from packtrain.spec.model_walk import walk_models
from packtrain.spec.models import workflow
from packtrain.spec.models.field_types import Seconds, SpecModel, Str

_ENGINE = "htcondor"  # its default retry delays apply
_DEFAULT_RECOVERY, _DEFAULT_LIMITS = plan_recovery(workflow.Recovery(), _ENGINE), plan_limits(workflow.Limits())


@dataclass(frozen=True)
class Scenario:
    """How jobs behave and how failures are handled."""

    name: str
    behaviour: JobBehaviour
    is_supervised: bool = True  # False: jobs are submitted once and only the pool retries
    recovery: Recovery = _DEFAULT_RECOVERY
    limits: Limits = _DEFAULT_LIMITS


SCENARIOS = {
    "plain": Scenario("plain", WrapperBehaviour(), is_supervised=False),
    "converted": Scenario("converted", AgentBehaviour(checkpoint_interval_s=None)),
    "packtrain": Scenario("packtrain", AgentBehaviour()),
}


class ScenarioFile(SpecModel):
    """A scenario in a YAML file: its differences from a built-in scenario."""

    name: Str = ""
    """The name in tables (default: the file name)."""
    base: Literal["converted", "packtrain"] = "packtrain"
    """The built-in scenario that it is based on."""
    recovery: workflow.Recovery = workflow.Recovery()
    """The same keys as in a workflow file."""
    limits: workflow.Limits = workflow.Limits()
    """The same keys as in a workflow file."""
    checkpoint_interval: Seconds | None = None
    """Time between two checkpoints, e.g. 30m."""
    retry_timeout: Seconds | None = None
    """How long an agent retries while a service returns 404 or 5xx."""


def load_scenario(name: str) -> Scenario:
    """Return a built-in scenario by name, or read a scenario file. Raises UsageError and NotFoundError."""
    if name in SCENARIOS:
        return SCENARIOS[name]
    path = Path(name).expanduser()
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no scenario {name!r}; use one of {', '.join(SCENARIOS)}, or the path of a scenario file"
        ) from None
    except OSError as error:
        raise UsageError(f"the scenario {path} cannot be read: {error.strerror}") from None
    return _scenario_from_file(_parse_scenario_file(text, path), path)


def _scenario_from_file(file: ScenarioFile, path: Path) -> Scenario:
    base = SCENARIOS[file.base]
    assert isinstance(base.behaviour, AgentBehaviour)
    overrides = {"checkpoint_interval_s": file.checkpoint_interval, "retry_timeout_s": file.retry_timeout}
    behaviour = replace(base.behaviour, **{name: value for name, value in overrides.items() if value is not None})
    recovery, limits = plan_recovery(file.recovery, _ENGINE), plan_limits(file.limits)
    return Scenario(file.name or path.stem, behaviour, recovery=recovery, limits=limits)


def _parse_scenario_file(text: bytes, path: Path) -> ScenarioFile:
    document = yaml_loader.parse_yaml(text, str(path))
    report = DiagnosticReport(document.source_map)
    report.extend(document.diagnostics)
    scenario = ScenarioFile()
    try:
        scenario = ScenarioFile.model_validate(document.value or {}) if not report.has_errors else scenario
    except ValidationError as error:
        models = {node.path: node.model for node in walk_models(ScenarioFile, document.value)}
        validation_messages.report_validation_errors(error.errors(), models, report)
    if report.has_errors:
        raise UsageError(str(next(diagnostic for diagnostic in report.diagnostics if diagnostic.is_error)))
    return scenario
