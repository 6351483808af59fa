"""The way in: `make_plan`, from a workflow to all that will be done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packtrain import plan
from packtrain.plan import RunFolder
from packtrain.planner import module_resolver
from packtrain.planner.containers import plan_container
from packtrain.planner.input_output_planner import plan_inputs, plan_output
from packtrain.planner.plan_context import JobContext, Setting
from packtrain.planner.secret_sources import SecretValue, Vault
from packtrain.planner.step_planner import StepPlanner
from packtrain.spec import matrix
from packtrain.spec.diagnostics import Path as Keys
from packtrain.spec.diagnostics import Problem, Report, shown
from packtrain.spec.models.field_types import inside
from packtrain.spec.models.inputs_outputs import Bound
from packtrain.spec.models.workflow import Limits, Recovery, Workflow

# How long all sources must agree before a 404 or 5xx is believed: somebody waits at this terminal.
_LOCAL_PATIENCE_S = 15.0
_PATIENCE_S = 300.0
# Before another attempt: the first wait and the longest.
_LOCAL_WAITS_S, _WAITS_S = (2.0, 120.0), (30.0, 600.0)


@dataclass(frozen=True)
class Planned:
    """The plan is complete only if none of the problems is an error."""

    plan: plan.Plan
    secrets: Mapping[str, SecretValue] = field(repr=False)
    problems: tuple[Problem, ...]

    @property
    def failed(self) -> bool:
        return any(problem.is_error for problem in self.problems)


def make_plan(
    workflow: Workflow,
    *,
    run: str,
    engine: str,
    where: Path,
    run_folder: RunFolder,
    no_container: bool = False,
    no_gpu: bool = False,
) -> Planned:
    """Plan a run of a workflow whose file lies in the folder `where`. Looks at local files and modules only."""
    report = Report(workflow.origin)
    name = workflow.name or Path(workflow.origin.name).stem
    with module_resolver.opened() as opened:
        setting = Setting(engine, run_folder, Vault(), opened, no_container, no_gpu)
        points = matrix.expand(workflow.matrix, workflow.count)
        jobs = tuple(
            _job(
                workflow,
                _context(workflow, setting, report, where, {"job": str(i), "run": run, "name": name, **point}),
                point,
            )
            for i, point in enumerate(points)
        )
    made = plan.Plan(
        run=run,
        name=name,
        engine=engine,
        jobs=jobs,
        htcondor=_lines(workflow.htcondor),
        slurm=_lines(workflow.slurm),
        recovery=plan_recovery(workflow.recovery, engine),
    )
    return Planned(made, setting.vault.found, report.problems)


def _context(
    workflow: Workflow, setting: Setting, report: Report, where: Path, values: Mapping[str, str]
) -> JobContext:
    # A DeepSquare file has one job and may well hold `{name}` in a command, e.g. a line of Python.
    many = workflow.matrix is not None or workflow.count > 1
    return JobContext(
        setting=setting,
        report=report,
        where=where.absolute(),
        values=values,
        in_commands=values if many else {},
        resources=_resources(workflow, setting.no_gpu),
        has_container=workflow.environment.container is not None,
    )


def _job(workflow: Workflow, job: JobContext, point: Mapping[str, str]) -> plan.Job:
    planner = StepPlanner(job)
    return plan.Job(
        id=job.values["job"],
        point=_lines(point),
        resources=job.resources,
        limits=plan_limits(workflow.limits),
        steps=planner.all(workflow.steps),
        env=planner.env(workflow.env, ("env",)),
        inputs=plan_inputs(workflow, job),
        output=plan_output(workflow, job),
        expect=_expect(workflow, job),
        checkpoint=_checkpoint(workflow, job),
        environment=_environment(workflow, job),
        patience_s=_LOCAL_PATIENCE_S if job.setting.engine == "local" else _PATIENCE_S,
    )


def _lines(values: Mapping[str, str]) -> tuple[plan.EnvVar, ...]:
    return tuple(plan.EnvVar(key, value) for key, value in values.items())


def _resources(workflow: Workflow, no_gpu: bool) -> plan.Resources:
    wanted = workflow.resources
    gpu = plan.GpuNeeds(wanted.gpu.min_memory, wanted.gpu.min_capability, wanted.gpu.min_driver, wanted.gpu.min_cuda)
    return plan.Resources(
        tasks=wanted.tasks,
        cpus_per_task=wanted.cpus_per_task,
        mem_per_cpu_mb=wanted.mem_per_cpu,
        gpus=0 if no_gpu else wanted.gpus,
        gpu=plan.GpuNeeds() if no_gpu else gpu,
    )


def plan_limits(limits: Limits) -> plan.Limits:
    return plan.Limits(limits.wall_time, limits.disk, limits.attempts, limits.grace, limits.wasted)


def plan_recovery(wanted: Recovery, engine: str) -> plan.Recovery:
    wait_s, longest_wait_s = _LOCAL_WAITS_S if engine == "local" else _WAITS_S
    return plan.Recovery(
        wait_s=wanted.wait or wait_s,
        longest_wait_s=max(wanted.longest_wait or longest_wait_s, wanted.wait or 0.0),
        failures=wanted.failures,
        wasted_s=wanted.wasted,
        stop_after=wanted.stop_after,
        avoid_s=wanted.avoid,
        most_memory=wanted.most_memory,
        most_disk=wanted.most_disk,
        switch_delivery=wanted.switch_delivery,
        copies=wanted.copies,
        least_gain_s=wanted.least_gain,
        longest_queue_s=wanted.longest_queue,
    )


def _expect(workflow: Workflow, job: JobContext) -> tuple[plan.Expect, ...]:
    return tuple(
        plan.Expect(
            path=_below_output(entry.path, ("expect", i, "path"), job),
            min_bytes=entry.min_size,
            max_bytes=entry.max_size,
            min_count=entry.min_count,
            max_count=entry.max_count,
            torch=entry.torch,
            json=_bounds(entry.numbers),
            archive=entry.archive,
            command=job.command(entry.command),
        )
        for i, entry in enumerate(workflow.expect)
    )


def _bounds(numbers: Mapping[str, Bound] | None) -> tuple[plan.Bound, ...] | None:
    if numbers is None:
        return None
    return tuple(plan.Bound(key, bound.min, bound.max) for key, bound in numbers.items())


def _checkpoint(workflow: Workflow, job: JobContext) -> plan.Checkpoint | None:
    wanted = workflow.checkpoint
    return plan.Checkpoint(_below_output(wanted.path, ("checkpoint", "path"), job), wanted.every) if wanted else None


def _below_output(path: str, keys: Keys, job: JobContext) -> str:
    """A value of the matrix must not lead out of the output folder either."""
    filled = job.fill(path)
    try:
        return inside(filled)
    except ValueError as error:
        job.report.error(keys, f"{shown(keys)} of job {job.values['job']}: {error}")
        return filled


def _environment(workflow: Workflow, job: JobContext) -> plan.Environment:
    around = workflow.environment
    return plan.Environment(
        container=plan_container(around.container, ("environment", "container"), job),
        setup=job.command(around.setup),
        path=tuple(map(job.fill, around.path)),
    )
