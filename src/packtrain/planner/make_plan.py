"""Make the plan of a run from a workflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from packtrain import plan
from packtrain.plan import RunFolder
from packtrain.planner.containers import plan_container
from packtrain.planner.credentials.secret_sources import SecretRegistry, SecretSource
from packtrain.planner.input_output_planner import plan_inputs, plan_output
from packtrain.planner.modules import module_resolver
from packtrain.planner.pixi_planner import (
    plan_pixi_environment,
    plan_workspace_input,
    read_job_environment,
    require_cuda,
)
from packtrain.planner.pixi_workspaces import PixiWorkspaces
from packtrain.planner.plan_context import JobContext, PlanContext
from packtrain.planner.step_planner import StepPlanner
from packtrain.spec import matrix
from packtrain.spec.diagnostics import Diagnostic, DiagnosticReport, KeyPath, format_key_path
from packtrain.spec.models.field_types import check_relative_path
from packtrain.spec.models.inputs_outputs import Bound
from packtrain.spec.models.workflow import Limits, Recovery, Workflow

# How long 404 and 5xx are retried; locally a user is waiting at the terminal.
_LOCAL_RETRY_TIMEOUT_S = 15.0
_POOL_RETRY_TIMEOUT_S = 300.0
# The first and the longest delay before another attempt.
_LOCAL_RETRY_DELAYS_S, _POOL_RETRY_DELAYS_S = (2.0, 120.0), (30.0, 600.0)


@dataclass(frozen=True)
class PlanResult:
    """A plan and its diagnostics. The plan is complete only if none of them is an error."""

    plan: plan.Plan
    secrets: Mapping[str, SecretSource] = field(repr=False)
    diagnostics: tuple[Diagnostic, ...]
    workspaces: PixiWorkspaces  # what the run's folder gets for its Pixi environments

    @property
    def has_errors(self) -> bool:
        return any(diagnostic.is_error for diagnostic in self.diagnostics)


def make_plan(
    workflow: Workflow,
    *,
    run: str,
    engine: str,
    workflow_dir: Path,
    run_folder: RunFolder,
    no_container: bool = False,
    no_gpu: bool = False,
) -> PlanResult:
    """Plan a run of a workflow. Reads local files and modules, but contacts no server.

    Args:
        workflow: The validated workflow.
        run: The id of the run.
        engine: The name of the engine.
        workflow_dir: The folder of the workflow file, to which paths are relative.
        run_folder: The folder of the run.
        no_container: Run every command on the host.
        no_gpu: Request no GPUs.
    """
    report = DiagnosticReport(workflow.source_map)
    name = workflow.name or Path(workflow.source_map.filename).stem
    with module_resolver.open_module_resolver() as modules:
        plan_context = PlanContext(
            engine, run_folder, SecretRegistry(), modules, PixiWorkspaces(), no_container, no_gpu
        )
        points = matrix.expand_matrix(workflow.matrix, workflow.count)
        jobs = tuple(
            _plan_job(
                workflow,
                _make_job_context(
                    workflow, plan_context, report, workflow_dir, {"job": str(i), "run": run, "name": name, **point}
                ),
                point,
            )
            for i, point in enumerate(points)
        )
    planned = plan.Plan(
        run=run,
        name=name,
        engine=engine,
        jobs=jobs,
        htcondor=_to_env_vars(workflow.htcondor),
        slurm=_to_env_vars(workflow.slurm),
        recovery=plan_recovery(workflow.recovery, engine),
    )
    return PlanResult(planned, plan_context.secret_registry.sources, report.diagnostics, plan_context.workspaces)


def _make_job_context(
    workflow: Workflow,
    plan_context: PlanContext,
    report: DiagnosticReport,
    workflow_dir: Path,
    template_values: Mapping[str, str],
) -> JobContext:
    # Single-job DeepSquare files may contain `{name}` in a command, for example in Python code.
    has_many_jobs = workflow.matrix is not None or workflow.count > 1
    return JobContext(
        plan_context=plan_context,
        report=report,
        base_dir=workflow_dir.absolute(),
        template_values=template_values,
        command_values=template_values if has_many_jobs else {},
        resources=_plan_resources(workflow, plan_context.no_gpu),
        workflow=workflow,
        has_container=workflow.environment.container is not None,
    )


def _plan_job(workflow: Workflow, context: JobContext, point: Mapping[str, str]) -> plan.Job:
    pixi = read_job_environment(context)
    if pixi:
        context = replace(context, pixi=pixi, resources=require_cuda(context.resources, pixi))
    planner = StepPlanner(context)
    return plan.Job(
        id=context.template_values["job"],
        point=_to_env_vars(point),
        resources=context.resources,
        limits=plan_limits(workflow.limits),
        steps=planner.plan_steps(workflow.steps),
        env=planner.plan_env(workflow.env, ("env",)),
        inputs=plan_inputs(workflow, context) + ((plan_workspace_input(context),) if pixi else ()),
        output=plan_output(workflow, context),
        expect=_plan_expected_outputs(workflow, context),
        checkpoint=_plan_checkpoint(workflow, context),
        environment=_plan_environment(workflow, context),
        retry_timeout_s=_LOCAL_RETRY_TIMEOUT_S if context.plan_context.engine == "local" else _POOL_RETRY_TIMEOUT_S,
    )


def _to_env_vars(values: Mapping[str, str]) -> tuple[plan.EnvVar, ...]:
    return tuple(plan.EnvVar(key, value) for key, value in values.items())


def _plan_resources(workflow: Workflow, no_gpu: bool) -> plan.Resources:
    resources = workflow.resources
    gpu = plan.GpuRequirements(
        resources.gpu.min_memory, resources.gpu.min_capability, resources.gpu.min_driver, resources.gpu.min_cuda
    )
    return plan.Resources(
        tasks=resources.tasks,
        cpus_per_task=resources.cpus_per_task,
        mem_per_cpu_mb=resources.mem_per_cpu,
        gpus=0 if no_gpu else resources.gpus,
        gpu=plan.GpuRequirements() if no_gpu else gpu,
    )


def plan_limits(spec: Limits) -> plan.Limits:
    """Convert `limits`."""
    return plan.Limits(spec.wall_time, spec.disk, spec.max_attempts, spec.grace, spec.max_wasted_time)


def plan_recovery(spec: Recovery, engine: str) -> plan.Recovery:
    """Convert `recovery`, with the engine's default delays."""
    first_delay_s, max_delay_s = _LOCAL_RETRY_DELAYS_S if engine == "local" else _POOL_RETRY_DELAYS_S
    return plan.Recovery(
        retry_delay_s=spec.retry_delay or first_delay_s,
        max_wait_s=max(spec.max_wait or max_delay_s, spec.retry_delay or 0.0),
        max_failures=spec.max_failures,
        max_wasted_time_s=spec.max_wasted_time,
        stop_after_identical_failures=spec.stop_after_identical_failures,
        avoid_for_s=spec.avoid_for,
        max_memory_factor=spec.max_memory_factor,
        max_disk_factor=spec.max_disk_factor,
        fallback_to_agent=spec.fallback_to_agent,
        straggler_budget=spec.straggler_budget,
        min_gain_s=spec.min_gain,
        max_queue_time_s=spec.max_queue_time,
    )


def _plan_expected_outputs(workflow: Workflow, context: JobContext) -> tuple[plan.ExpectedOutput, ...]:
    return tuple(
        plan.ExpectedOutput(
            path=_fill_output_path(entry.path, ("expect", i, "path"), context),
            min_bytes=entry.min_size,
            max_bytes=entry.max_size,
            min_count=entry.min_count,
            max_count=entry.max_count,
            torch=entry.torch,
            json_bounds=_plan_bounds(entry.json_bounds),
            archive=entry.archive,
            command=context.fill_command(entry.command),
        )
        for i, entry in enumerate(workflow.expect)
    )


def _plan_bounds(numbers: Mapping[str, Bound] | None) -> tuple[plan.Bound, ...] | None:
    if numbers is None:
        return None
    return tuple(plan.Bound(key, bound.min, bound.max) for key, bound in numbers.items())


def _plan_checkpoint(workflow: Workflow, context: JobContext) -> plan.CheckpointConfig | None:
    spec = workflow.checkpoint
    if spec is None:
        return None
    keys: list[tuple[str, KeyPath]] = (
        [(path, ("checkpoint", "paths", i)) for i, path in enumerate(spec.paths)]
        if spec.paths
        else [(spec.path or "", ("checkpoint", "path"))]
    )
    path, *more_paths = (_fill_output_path(path, key_path, context) for path, key_path in keys)
    return plan.CheckpointConfig(
        path, spec.min_interval, tuple(more_paths), context.fill_placeholders(spec.folder), spec.when, spec.exit_code
    )


def _fill_output_path(path: str, key_path: KeyPath, context: JobContext) -> str:
    """Fill placeholders and check that the path stays below the output folder."""
    filled = context.fill_placeholders(path)
    try:
        return check_relative_path(filled)
    except ValueError as error:
        context.report.error(key_path, f"{format_key_path(key_path)} of job {context.template_values['job']}: {error}")
        return filled


def _plan_environment(workflow: Workflow, context: JobContext) -> plan.EnvironmentConfig:
    spec = workflow.environment
    if spec.inherit and context.plan_context.engine == "htcondor":
        message = "jobs on HTCondor do not get variables of your shell (environment.inherit)"
        hint = "name the variables in `env`, and run batch scripts on Slurm"
        context.report.error(("environment", "inherit"), message, hint)
    return plan.EnvironmentConfig(
        container=plan_container(spec.container, ("environment", "container"), context),
        setup=context.fill_command(spec.setup),
        path=tuple(map(context.fill_placeholders, spec.path)),
        pixi=plan_pixi_environment(context.pixi, context) if context.pixi else None,
        inherit=spec.inherit,
    )
