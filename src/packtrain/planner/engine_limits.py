"""Whether a plan fits what an engine has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from packtrain.plan import Container, Job, Plan, Run, Step
from packtrain.spec.diagnostics import Origin, Problem, Report
from packtrain.spec.units import show_size

_MB = 1_000_000


class Machine(Protocol):
    """The part of an engine's capabilities that matters here."""

    @property
    def name(self) -> str: ...
    @property
    def containers(self) -> bool: ...
    @property
    def gpus(self) -> int: ...
    @property
    def cpus(self) -> int: ...
    @property
    def memory_mb(self) -> int: ...


def problems_for(plan: Plan, machine: Machine, origin: Origin | None = None) -> tuple[Problem, ...]:
    """What the machine cannot give. `origin` is the workflow's, for line numbers.

    CPUs and memory are warnings, since the job still runs, alone; GPUs and containers are errors."""
    report = Report(origin or Origin(plan.name))
    for job in plan.jobs[:1]:  # resources and steps of all jobs are the same
        _compare(job, machine, report)
        if not machine.containers and any(_containers(job)):
            message = f"{machine.name} cannot run the workflow's containers: Apptainer is not installed"
            report.error(("steps",), message, "install Apptainer, or run on the host with --no-container")
    return report.problems


def within(plan: Plan, machine: Machine) -> Plan:
    """The plan with no more memory than there is, as the warning says: the agent's probe asks for no more."""
    return replace(plan, jobs=tuple(_within(job, machine) for job in plan.jobs))


def _within(job: Job, machine: Machine) -> Job:
    wanted = job.resources
    if wanted.memory_mb <= machine.memory_mb:
        return job
    return replace(job, resources=replace(wanted, mem_per_cpu_mb=machine.memory_mb // wanted.cpus))


def _compare(job: Job, machine: Machine, report: Report) -> None:
    wanted = job.resources
    alone = "jobs run one at a time with what there is"
    if wanted.cpus > machine.cpus:
        message = f"each job asks for {wanted.cpus} CPUs, {machine.name} has {machine.cpus}: {alone}"
        report.warning(("resources", "cpusPerTask"), message)
    if wanted.memory_mb > machine.memory_mb:
        asked, has = show_size(wanted.memory_mb * _MB), show_size(machine.memory_mb * _MB)
        report.warning(
            ("resources", "memPerCpu"), f"each job asks for {asked} of memory, {machine.name} has {has}: {alone}"
        )
    if wanted.gpus > machine.gpus:
        message = f"each job asks for {wanted.gpus} GPUs, {machine.name} has {machine.gpus}"
        report.error(("resources", "gpus"), message, "run without any with --no-gpu")


def _containers(job: Job) -> Iterator[Container]:
    if job.environment.container:
        yield job.environment.container
    for step in _all_steps(job.steps):
        if isinstance(step.action, Run) and step.action.container:
            yield step.action.container


def _all_steps(steps: tuple[Step, ...]) -> Iterator[Step]:
    for step in steps:
        yield step
        below = () if isinstance(step.action, Run) else step.action.steps
        yield from _all_steps(below + step.catch + step.finally_)
