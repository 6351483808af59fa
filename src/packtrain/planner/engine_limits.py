"""Check whether a plan fits an engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from packtrain.formatting import format_size, pluralize
from packtrain.plan import Container, Job, Plan, RunAction, Step
from packtrain.spec.diagnostics import Diagnostic, DiagnosticReport, SourceMap

_BYTES_PER_MB = 1_000_000


class EngineLimits(Protocol):
    """The capabilities of an engine that limit a plan."""

    @property
    def name(self) -> str: ...
    @property
    def supports_containers(self) -> bool: ...
    @property
    def gpus(self) -> int: ...
    @property
    def cpus(self) -> int: ...
    @property
    def memory_mb(self) -> int: ...


def check_engine_limits(
    plan: Plan, engine: EngineLimits, source_map: SourceMap | None = None
) -> tuple[Diagnostic, ...]:
    """Report what the engine cannot provide.

    Too few CPUs or too little memory are warnings, because jobs then run one at a time; missing GPUs and container
    support are errors.

    Args:
        plan: The plan.
        engine: The engine's capabilities.
        source_map: The positions of the workflow's keys.
    """
    report = DiagnosticReport(source_map or SourceMap(plan.name))
    for job in plan.jobs[:1]:  # all jobs have the same resources and steps
        _check_resources(job, engine, report)
        if not engine.supports_containers and any(_iter_containers(job)):
            message = f"{engine.name} cannot run the workflow's containers: Apptainer is not installed"
            report.error(("steps",), message, "install Apptainer, or run on the host with --no-container")
    return report.diagnostics


def clamp_memory(plan: Plan, engine: EngineLimits) -> Plan:
    """Return the plan with at most the engine's memory, so that the agent's probe accepts the node."""
    return replace(plan, jobs=tuple(_clamp_job_memory(job, engine) for job in plan.jobs))


def _clamp_job_memory(job: Job, engine: EngineLimits) -> Job:
    resources = job.resources
    if resources.memory_mb <= engine.memory_mb:
        return job
    return replace(job, resources=replace(resources, mem_per_cpu_mb=engine.memory_mb // resources.cpus))


def _check_resources(job: Job, engine: EngineLimits, report: DiagnosticReport) -> None:
    resources = job.resources
    consequence = "jobs run one at a time"
    if resources.cpus > engine.cpus:
        message = (
            f"each job requests {pluralize(resources.cpus, 'CPU')}, {engine.name} has {engine.cpus}: {consequence}"
        )
        report.warning(("resources", "cpusPerTask"), message)
    if resources.memory_mb > engine.memory_mb:
        requested = format_size(resources.memory_mb * _BYTES_PER_MB)
        available = format_size(engine.memory_mb * _BYTES_PER_MB)
        message = f"each job requests {requested} of memory, {engine.name} has {available}: {consequence}"
        report.warning(("resources", "memPerCpu"), message)
    if resources.gpus > engine.gpus:
        message = f"each job requests {pluralize(resources.gpus, 'GPU')}, {engine.name} has {engine.gpus}"
        report.error(("resources", "gpus"), message, "--no-gpu runs without GPUs")


def _iter_containers(job: Job) -> Iterator[Container]:
    if job.environment.container:
        yield job.environment.container
    for step in _iter_steps(job.steps):
        if isinstance(step.action, RunAction) and step.action.container:
            yield step.action.container


def _iter_steps(steps: tuple[Step, ...]) -> Iterator[Step]:
    for step in steps:
        yield step
        nested = () if isinstance(step.action, RunAction) else step.action.steps
        yield from _iter_steps(nested + step.catch + step.finally_)
