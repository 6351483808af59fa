"""What is compared: HTCondor alone, packtrain with and without checkpoints, or what a file says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from packtrain.errors import NotFoundError, UsageError
from packtrain.plan import Limits, Recovery
from packtrain.planner.make_plan import plan_limits, plan_recovery
from packtrain.simulate.job_behaviour import Agent, Behaviour, Wrapper
from packtrain.spec import validation_messages, yaml_loader
from packtrain.spec.diagnostics import Report
from packtrain.spec.model_walk import walk
from packtrain.spec.models import workflow
from packtrain.spec.models.field_types import Model, Seconds, Str

_POOL = "htcondor"  # the waits that recovery has there
_USUAL, _LIMITS = plan_recovery(workflow.Recovery(), _POOL), plan_limits(workflow.Limits())


@dataclass(frozen=True)
class Policy:
    name: str
    behaviour: Behaviour
    supervised: bool = True  # False: the jobs are submitted once, and what the pool does is all that is done
    recovery: Recovery = _USUAL
    limits: Limits = _LIMITS


POLICIES = {
    "plain": Policy("plain", Wrapper(), supervised=False),
    "adopted": Policy("adopted", Agent(checkpoint_s=None)),
    "packtrain": Policy("packtrain", Agent()),
}


class PolicyFile(Model):
    """A policy in a file: what differs from one of packtrain's own."""

    name: Str = ""
    """Its name in tables; by default that of the file."""
    like: Literal["adopted", "packtrain"] = "packtrain"
    """What it is like otherwise."""
    recovery: workflow.Recovery = workflow.Recovery()
    """As in a workflow file."""
    limits: workflow.Limits = workflow.Limits()
    """As in a workflow file."""
    checkpoint: Seconds | None = None
    """Time between two checkpoints, e.g. 30m."""
    patience: Seconds | None = None
    """How long an agent waits for a service that says 404 or 5xx."""


def policy_of(name: str) -> Policy:
    """By its name, or by its file. Raises UsageError and NotFoundError."""
    if name in POLICIES:
        return POLICIES[name]
    path = Path(name).expanduser()
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise NotFoundError(f"there is no policy {name!r}; known are {', '.join(POLICIES)}, or name a file") from None
    except OSError as error:
        raise UsageError(f"the policy {path} cannot be read: {error.strerror}") from None
    return _made(_checked(text, path), path)


def _made(file: PolicyFile, path: Path) -> Policy:
    base = POLICIES[file.like]
    assert isinstance(base.behaviour, Agent)
    told = {"checkpoint_s": file.checkpoint, "patience_s": file.patience}
    behaviour = replace(base.behaviour, **{name: value for name, value in told.items() if value is not None})
    recovery, limits = plan_recovery(file.recovery, _POOL), plan_limits(file.limits)
    return Policy(file.name or path.stem, behaviour, recovery=recovery, limits=limits)


def _checked(text: bytes, path: Path) -> PolicyFile:
    document = yaml_loader.read(text, str(path))
    report = Report(document.origin)
    report.extend(document.problems)
    made = PolicyFile()
    try:
        made = PolicyFile.model_validate(document.value or {}) if not report.failed else made
    except ValidationError as error:
        models = {node.path: node.model for node in walk(PolicyFile, document.value)}
        validation_messages.report_all(error.errors(), models, report)
    if report.failed:
        raise UsageError(str(next(problem for problem in report.problems if problem.is_error)))
    return made
