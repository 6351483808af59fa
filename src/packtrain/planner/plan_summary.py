"""Summarize a plan for users before anything is submitted: plain data for a table or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from packtrain.formatting import format_duration, format_size, pluralize
from packtrain.plan import (
    Bound,
    ExpectedOutput,
    ForAction,
    GroupAction,
    Input,
    Job,
    LaunchAction,
    PixiEnvironment,
    Plan,
    RemoteFile,
    RunAction,
    Step,
    UseAction,
)
from packtrain.planner.mode_cost import ModeCost, compare_modes
from packtrain.planner.preflight import InputStat, PreflightResult
from packtrain.planner.stream_planner import STREAM
from packtrain.transfer.archive.disk_need import staged_disk_bytes
from packtrain.transfer.urls import redact_url


@dataclass(frozen=True)
class InputSummary:
    """One file or prefix of an input."""

    name: str  # "input", or its name below `inputs`
    url: str
    size: int | None
    n_files: int | None
    reachable: bool | None  # None: not checked
    error: str
    unpack: str
    n_jobs: int  # how many jobs use it
    mode_costs: tuple[ModeCost, ...] = ()  # costs of staging and streaming, if both are possible


@dataclass(frozen=True)
class EnvironmentSummary:
    """The Pixi environment of the jobs."""

    name: str
    platform: str
    manifest: str
    n_packages: int
    download_bytes: int  # of the packages whose size is known
    n_unknown_sizes: int
    installed_bytes: int  # an estimate
    use: str
    sources: tuple[str, ...]  # URLs that are tried, in this order
    requires: dict[str, str]


@dataclass(frozen=True)
class StepSummary:
    """One step."""

    name: str
    kind: str
    description: str  # the command, or what the step does with its nested steps
    image: str = ""
    steps: tuple[StepSummary, ...] = ()


@dataclass(frozen=True)
class PlannedJob:
    """One job."""

    id: str
    point: dict[str, str]
    output: str


@dataclass(frozen=True)
class PlanSummary:
    """The whole plan."""

    run: str
    name: str
    engine: str
    jobs: tuple[PlannedJob, ...]
    inputs: tuple[InputSummary, ...]
    resources: dict[str, Any]  # of each job
    steps: tuple[StepSummary, ...]  # of the first job
    expect: tuple[str, ...]
    limits: dict[str, str]
    disk_bytes: int | None  # estimated disk need of one job; None: a size is unknown
    environment: EnvironmentSummary | None = None

    def to_data(self) -> dict[str, Any]:
        return asdict(self)


def summarize_plan(
    plan: Plan, preflight: PreflightResult | None = None, sources: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> PlanSummary:
    """Summarize a plan. Jobs differ only by their matrix point, so the first one represents all.

    Args:
        plan: The plan.
        preflight: The stats of its inputs.
        sources: Where the packages of Pixi environments come from, by the name of the environment.
    """
    preflight = preflight or PreflightResult()
    first = plan.jobs[0]
    return PlanSummary(
        run=plan.run,
        name=plan.name,
        engine=plan.engine,
        jobs=tuple(_summarize_job(job) for job in plan.jobs),
        inputs=_summarize_inputs(plan, preflight),
        resources=_summarize_resources(first),
        steps=_summarize_steps(first.steps),
        expect=tuple(_describe_expected_output(expected) for expected in first.expect),
        limits=_summarize_limits(first),
        disk_bytes=estimate_disk_bytes(first, preflight),
        environment=_summarize_environment(first.environment.pixi, sources),
    )


def _summarize_environment(
    pixi: PixiEnvironment | None, sources: Mapping[str, Sequence[str]]
) -> EnvironmentSummary | None:
    if pixi is None:
        return None
    store = [redact_url(pixi.store.url)] if pixi.store else []
    mirrors = [redact_url(mirror.location.url) for mirror in pixi.mirrors]
    return EnvironmentSummary(
        name=pixi.name,
        platform=pixi.platform,
        manifest=pixi.manifest,
        n_packages=pixi.n_packages,
        download_bytes=pixi.download_bytes,
        n_unknown_sizes=pixi.n_unknown_sizes,
        installed_bytes=pixi.installed_bytes,
        use=pixi.use,
        sources=(*mirrors, *store, *sources.get(pixi.name, ())),
        requires={key: value for key, value in asdict(pixi.requires).items() if value},
    )


def _summarize_job(job: Job) -> PlannedJob:
    point = {variable.key: str(variable.value) for variable in job.point}
    return PlannedJob(job.id, point, redact_url(job.output.location.url) if job.output else "")


def _summarize_inputs(plan: Plan, preflight: PreflightResult) -> tuple[InputSummary, ...]:
    """Summarize each file or prefix once, with the number of jobs that use it."""
    users: dict[tuple[str, Any], list[Input]] = {}
    for job in plan.jobs:
        for input_ in job.inputs:
            for part in _summary_parts(input_):
                users.setdefault((input_.name, part), []).append(input_)
    limit = plan.jobs[0].limits.disk_bytes
    return tuple(
        _summarize_input(inputs[0], part, preflight, len(inputs), limit) for (_, part), inputs in users.items()
    )


def _summary_parts(input_: Input) -> Sequence[Any]:
    """Return the parts to list; a streamed input is one part."""
    return [input_] if input_.mode == STREAM else _input_parts(input_)


def _input_parts(input_: Input) -> Sequence[Any]:
    return [input_.prefix] if input_.prefix else input_.files


def _find_stat(part: Any, preflight: PreflightResult) -> InputStat | None:
    if isinstance(part, Input):
        return _combine_stats([_find_stat(one, preflight) for one in _input_parts(part)])
    return preflight.file_stat(part) if isinstance(part, RemoteFile) else preflight.prefix_stat(part)


def _combine_stats(input_stats: Sequence[InputStat | None]) -> InputStat | None:
    known = [stat for stat in input_stats if stat is not None]
    if len(known) < len(input_stats):
        return None
    representative = next((stat for stat in known if stat.error), known[0])
    n_files = sum(stat.n_files or 0 for stat in known)
    return replace(representative, size=_sum_known(stat.size for stat in known), n_files=n_files)


def _input_mode_costs(
    input_: Input, part: Any, preflight: PreflightResult, size: int | None, disk_limit_bytes: int | None
) -> tuple[ModeCost, ...]:
    if part not in (input_, input_.prefix) and len(input_.files) > 1:
        return ()  # costs are shown for the whole input only
    staged = replace(input_, mode="stage", unpack="auto" if input_.prefix is None else input_.unpack)
    return compare_modes(input_, size, _estimate_input_bytes(staged, preflight), disk_limit_bytes)


def _summarize_input(
    input_: Input, part: Any, preflight: PreflightResult, n_jobs: int, disk_limit_bytes: int | None
) -> InputSummary:
    stat = _find_stat(part, preflight)
    first = _input_parts(part)[0] if isinstance(part, Input) else part
    location = first.locations[0] if isinstance(first, RemoteFile) else first
    size = stat.size if stat else getattr(part, "size", None)
    return InputSummary(
        name=input_.name or "input",
        url=redact_url(location.url),
        size=size,
        n_files=stat.n_files if stat else None,
        reachable=stat.is_reachable if stat else None,
        error=stat.error if stat else "",
        unpack=input_.unpack,
        n_jobs=n_jobs,
        mode_costs=_input_mode_costs(input_, part, preflight, size, disk_limit_bytes),
    )


def _summarize_resources(job: Job) -> dict[str, Any]:
    gpu = {key: value for key, value in asdict(job.resources.gpu).items() if value is not None}
    resources = {"tasks": job.resources.tasks, "cpus": job.resources.cpus, "memory_mb": job.resources.memory_mb}
    return {**resources, "gpus": job.resources.gpus, **({"gpu": gpu} if gpu else {})}


def _summarize_steps(steps: Sequence[Step]) -> tuple[StepSummary, ...]:
    return tuple(_summarize_step(step) for step in steps)


def _summarize_step(step: Step) -> StepSummary:
    nested = () if isinstance(step.action, RunAction) else _summarize_steps(step.action.steps)
    extra = tuple(
        StepSummary(key, key, "", steps=_summarize_steps(steps))
        for key, steps in (("catch", step.catch), ("finally", step.finally_))
        if steps
    )
    image = step.action.container.image if isinstance(step.action, RunAction) and step.action.container else ""
    condition = f"if [[ {step.condition} ]]: " if step.condition else ""
    return StepSummary(step.name, step.action.kind, condition + _describe_action(step.action), image, nested + extra)


def _describe_action(action: RunAction | GroupAction | ForAction | LaunchAction | UseAction) -> str:
    if isinstance(action, RunAction):
        return action.command or "the image's entrypoint"
    if isinstance(action, ForAction):
        order = "in parallel" if action.parallel else "in sequence"
        return f"{len(action.values)} iterations {order}"
    if isinstance(action, LaunchAction):
        return f"in the background{f' as {action.handle}' if action.handle else ''}"
    return action.source if isinstance(action, UseAction) else ""


def _describe_expected_output(expected: ExpectedOutput) -> str:
    """Return, for example, `*.pt: at least 1 file, each at least 1 MB, checked by …`."""
    parts = [f"at least {pluralize(expected.min_count, 'file')}"]
    parts += [f"at most {expected.max_count}"] if expected.max_count is not None else []
    parts += [f"each at least {format_size(expected.min_bytes)}"] if expected.min_bytes > 1 else []
    parts += [f"each at most {format_size(expected.max_bytes)}"] if expected.max_bytes is not None else []
    parts += ["a torch file with finite values"] if expected.torch else []
    parts += (
        [_describe_bound(bound) for bound in expected.json_bounds] or ["valid JSON"]
        if expected.json_bounds is not None
        else []
    )
    parts += ["a complete archive"] if expected.archive else []
    parts += [f"checked by `{expected.command}`"] if expected.command else []
    return f"{expected.path}: {', '.join(parts)}"


def _describe_bound(bound: Bound) -> str:
    """Return, for example, `accuracy ≥ 0.5`."""
    low = f" ≥ {bound.min:g}" if bound.min is not None else ""
    high = f" ≤ {bound.max:g}" if bound.max is not None else ""
    return f"{bound.key}{low}{' and' if low and high else ''}{high}" if low or high else f"{bound.key} finite"


def _summarize_limits(job: Job) -> dict[str, str]:
    limits = job.limits
    rows = {"maxAttempts": str(limits.max_attempts), "grace": format_duration(limits.grace_s)}
    rows |= {"wallTime": format_duration(limits.wall_time_s)} if limits.wall_time_s else {}
    rows |= {"maxWastedTime": format_duration(limits.max_wasted_time_s)} if limits.max_wasted_time_s else {}
    return rows | ({"disk": format_size(limits.disk_bytes)} if limits.disk_bytes else {})


def estimate_disk_bytes(job: Job, preflight: PreflightResult) -> int | None:
    """Estimate the disk need of a job: inputs with their content, packages; None if an input's size is unknown."""
    inputs = _sum_known(_estimate_input_bytes(input_, preflight) for input_ in job.inputs if input_.mode != STREAM)
    pixi = job.environment.pixi
    packages = pixi.download_bytes + pixi.installed_bytes if pixi and pixi.use == "install" else 0
    return None if inputs is None else inputs + packages


def _estimate_input_bytes(input_: Input, preflight: PreflightResult) -> int | None:
    return _sum_known(_estimate_part_bytes(input_, part, preflight) for part in _input_parts(input_))


def _estimate_part_bytes(input_: Input, part: Any, preflight: PreflightResult) -> int | None:
    stat = _find_stat(part, preflight)
    size = stat.size if stat else getattr(part, "size", None)
    if size is None or not isinstance(part, RemoteFile):
        return size
    return staged_disk_bytes(input_, part, size, typical=True)


def _sum_known(numbers: Iterable[int | None]) -> int | None:
    """Return the sum, or None if a number is unknown."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
