"""Whether a plan fits what an engine has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from packtrain.plan import Container, Job, Plan, RunAction, Step
from packtrain.spec.diagnostics import Diagnostic, DiagnosticReport, SourceMap
from packtrain.spec.units import format_size

_BYTES_PER_MB = 1_000_000


class EngineLimits(Protocol):
    """The part of an engine's capabilities that matters here."""

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
    """What the machine cannot give. `origin` is the workflow's, for line numbers.

    CPUs and memory are warnings, since the job still runs, alone; GPUs and containers are errors."""
    report = DiagnosticReport(source_map or SourceMap(plan.name))
    for job in plan.jobs[:1]:  # resources and steps of all jobs are the same
        _check_resources(job, engine, report)
        if not engine.supports_containers and any(_iter_containers(job)):
            message = f"{engine.name} cannot run the workflow's containers: Apptainer is not installed"
            report.error(("steps",), message, "install Apptainer, or run on the host with --no-container")
    return report.diagnostics


def clamp_memory(plan: Plan, engine: EngineLimits) -> Plan:
    """The plan with no more memory than there is, as the warning says: the agent's probe asks for no more."""
    return replace(plan, jobs=tuple(_clamp_job_memory(job, engine) for job in plan.jobs))


def _clamp_job_memory(job: Job, engine: EngineLimits) -> Job:
    wanted = job.resources
    if wanted.memory_mb <= engine.memory_mb:
        return job
    return replace(job, resources=replace(wanted, mem_per_cpu_mb=engine.memory_mb // wanted.cpus))


def _check_resources(job: Job, engine: EngineLimits, report: DiagnosticReport) -> None:
    wanted = job.resources
    alone = "jobs run one at a time with what there is"
    if wanted.cpus > engine.cpus:
        message = f"each job asks for {wanted.cpus} CPUs, {engine.name} has {engine.cpus}: {alone}"
        report.warning(("resources", "cpusPerTask"), message)
    if wanted.memory_mb > engine.memory_mb:
        asked, has = format_size(wanted.memory_mb * _BYTES_PER_MB), format_size(engine.memory_mb * _BYTES_PER_MB)
        report.warning(
            ("resources", "memPerCpu"), f"each job asks for {asked} of memory, {engine.name} has {has}: {alone}"
        )
    if wanted.gpus > engine.gpus:
        message = f"each job asks for {wanted.gpus} GPUs, {engine.name} has {engine.gpus}"
        report.error(("resources", "gpus"), message, "run without any with --no-gpu")


def _iter_containers(job: Job) -> Iterator[Container]:
    if job.environment.container:
        yield job.environment.container
    for step in _iter_steps(job.steps):
        if isinstance(step.action, RunAction) and step.action.container:
            yield step.action.container


def _iter_steps(steps: tuple[Step, ...]) -> Iterator[Step]:
    for step in steps:
        yield step
        below = () if isinstance(step.action, RunAction) else step.action.steps
        yield from _iter_steps(below + step.catch + step.finally_)
