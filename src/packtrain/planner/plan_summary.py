"""A plan as people want to see it before anything is spent: plain data for a table or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from packtrain.plan import (
    Bound,
    ExpectedOutput,
    ForAction,
    GroupAction,
    Input,
    Job,
    LaunchAction,
    Plan,
    RemoteFile,
    RunAction,
    Step,
    UseAction,
)
from packtrain.planner.mode_cost import ModeCost, compare_modes
from packtrain.planner.preflight import InputStat, PreflightResult
from packtrain.planner.stream_planner import STREAM
from packtrain.spec.units import format_duration, format_size
from packtrain.transfer.urls import redact_url, url_scheme

# How much larger unpacked data usually is than its archive; a guess, and said to be one.
_UNPACK_GROWTH = {
    ".tar": 1.0,
    ".gz": 2.0,
    ".tgz": 2.0,
    ".bz2": 2.5,
    ".tbz": 2.5,
    ".tbz2": 2.5,
    ".xz": 3.0,
    ".txz": 3.0,
    ".zip": 2.0,
}
_NOT_STREAMABLE_SUFFIXES = (".zip",)


@dataclass(frozen=True)
class InputSummary:
    name: str  # input, or its name below inputs
    url: str
    size: int | None
    n_files: int | None
    reachable: bool | None  # none: it was not asked
    error: str
    unpack: str
    n_jobs: int  # how many jobs use it
    mode_costs: tuple[ModeCost, ...] = ()  # how it could come, where there is a choice


@dataclass(frozen=True)
class StepSummary:
    name: str
    kind: str
    description: str  # the command, or what the step does with those below
    image: str = ""
    steps: tuple[StepSummary, ...] = ()


@dataclass(frozen=True)
class PlannedJob:
    id: str
    point: dict[str, str]
    output: str


@dataclass(frozen=True)
class PlanSummary:
    run: str
    name: str
    engine: str
    jobs: tuple[PlannedJob, ...]
    inputs: tuple[InputSummary, ...]
    resources: dict[str, Any]  # of each job
    steps: tuple[StepSummary, ...]  # of the first job
    expect: tuple[str, ...]
    limits: dict[str, str]
    disk_bytes: int | None  # what one job needs by a guess; none: a size is not known

    def to_data(self) -> dict[str, Any]:
        return asdict(self)


def summarize_plan(plan: Plan, preflight: PreflightResult | None = None) -> PlanSummary:
    """All jobs of a plan differ by their point only, so the first one shows resources, steps and limits."""
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
        expect=tuple(_describe_expected_output(wanted) for wanted in first.expect),
        limits=_summarize_limits(first),
        disk_bytes=estimate_disk_bytes(first, preflight),
    )


def _summarize_job(job: Job) -> PlannedJob:
    point = {variable.key: str(variable.value) for variable in job.point}
    return PlannedJob(job.id, point, redact_url(job.output.location.url) if job.output else "")


def _summarize_inputs(plan: Plan, preflight: PreflightResult) -> tuple[InputSummary, ...]:
    """Each file or prefix once, with the number of jobs that use it."""
    users: dict[tuple[str, Any], list[Input]] = {}
    for job in plan.jobs:
        for source in job.inputs:
            for part in _summary_parts(source):
                users.setdefault((source.name, part), []).append(source)
    promised = plan.jobs[0].limits.disk_bytes
    return tuple(_summarize_input(used[0], part, preflight, len(used), promised) for (_, part), used in users.items())


def _summary_parts(input_: Input) -> Sequence[Any]:
    """All archives of what is streamed are one thing."""
    return [input_] if input_.mode == STREAM else _input_parts(input_)


def _input_parts(input_: Input) -> Sequence[Any]:
    return [input_.prefix] if input_.prefix else input_.files


def _find_stat(part: Any, preflight: PreflightResult) -> InputStat | None:
    if isinstance(part, Input):
        return _combine_stats([_find_stat(one, preflight) for one in _input_parts(part)])
    return preflight.file_stat(part) if isinstance(part, RemoteFile) else preflight.prefix_stat(part)


def _combine_stats(input_stats: Sequence[InputStat | None]) -> InputStat | None:
    known = [finding for finding in input_stats if finding is not None]
    if len(known) < len(input_stats):
        return None
    sizes = [finding.size for finding in known if finding.size is not None]
    troubled = next((finding for finding in known if finding.error), known[0])
    files = sum(finding.n_files or 0 for finding in known)
    return replace(troubled, size=sum(sizes) if len(sizes) == len(known) else None, n_files=files)


def _input_mode_costs(
    input_: Input, part: Any, preflight: PreflightResult, size: int | None, disk_limit_bytes: int | None
) -> tuple[ModeCost, ...]:
    if part not in (input_, input_.prefix) and len(input_.files) > 1:
        return ()  # several files have no line of their own
    staged = replace(input_, mode="stage", unpack="auto" if input_.prefix is None else input_.unpack)
    needs = [
        _estimate_part_bytes(one, staged.unpack == "auto", _find_stat(one, preflight)) for one in _input_parts(staged)
    ]
    known = [need for need in needs if need is not None]
    return compare_modes(input_, size, sum(known) if len(known) == len(needs) else None, disk_limit_bytes)


def _summarize_input(
    input_: Input, part: Any, preflight: PreflightResult, n_jobs: int, disk_limit_bytes: int | None
) -> InputSummary:
    found, unpack = _find_stat(part, preflight), input_.unpack
    first = _input_parts(part)[0] if isinstance(part, Input) else part
    ref = first.locations[0] if isinstance(first, RemoteFile) else first
    size = found.size if found else getattr(part, "size", None)
    return InputSummary(
        name=input_.name or "input",
        url=redact_url(ref.url),
        size=size,
        n_files=found.n_files if found else None,
        reachable=found.is_reachable if found else None,
        error=found.error if found else "",
        unpack=unpack,
        n_jobs=n_jobs,
        mode_costs=_input_mode_costs(input_, part, preflight, size, disk_limit_bytes),
    )


def _summarize_resources(job: Job) -> dict[str, Any]:
    gpu = {key: value for key, value in asdict(job.resources.gpu).items() if value is not None}
    wanted = {"tasks": job.resources.tasks, "cpus": job.resources.cpus, "memory_mb": job.resources.memory_mb}
    return {**wanted, "gpus": job.resources.gpus, **({"gpu": gpu} if gpu else {})}


def _summarize_steps(steps: Sequence[Step]) -> tuple[StepSummary, ...]:
    return tuple(_summarize_step(step) for step in steps)


def _summarize_step(step: Step) -> StepSummary:
    below = () if isinstance(step.action, RunAction) else _summarize_steps(step.action.steps)
    extra = tuple(
        StepSummary(word, word, "", steps=_summarize_steps(steps))
        for word, steps in (("catch", step.catch), ("finally", step.finally_))
        if steps
    )
    image = step.action.container.image if isinstance(step.action, RunAction) and step.action.container else ""
    condition = f"if [[ {step.condition} ]]: " if step.condition else ""
    return StepSummary(step.name, step.action.kind, condition + _describe_action(step.action), image, below + extra)


def _describe_action(action: RunAction | GroupAction | ForAction | LaunchAction | UseAction) -> str:
    if isinstance(action, RunAction):
        return action.command or "the image's entrypoint"
    if isinstance(action, ForAction):
        way = "at once" if action.parallel else "one after the other"
        return f"{len(action.values)} rounds {way}"
    if isinstance(action, LaunchAction):
        return f"in the background{f' as {action.handle}' if action.handle else ''}"
    return action.source if isinstance(action, UseAction) else ""


def _describe_expected_output(expected: ExpectedOutput) -> str:
    """`*.pt: at least 1 file, each at least 1.0 MB, checked by …`"""
    parts = [f"at least {expected.min_count} file{'s' if expected.min_count != 1 else ''}"]
    parts += [f"at most {expected.max_count}"] if expected.max_count is not None else []
    parts += [f"each at least {format_size(expected.min_bytes)}"] if expected.min_bytes > 1 else []
    parts += [f"each at most {format_size(expected.max_bytes)}"] if expected.max_bytes is not None else []
    parts += ["a model of torch with finite values"] if expected.torch else []
    parts += (
        [_describe_bound(bound) for bound in expected.json_bounds] or ["valid JSON"]
        if expected.json_bounds is not None
        else []
    )
    parts += ["a whole archive"] if expected.archive else []
    parts += [f"checked by `{expected.command}`"] if expected.command else []
    return f"{expected.path}: {', '.join(parts)}"


def _describe_bound(bound: Bound) -> str:
    """`accuracy ≥ 0.5`"""
    least = f" ≥ {bound.min:g}" if bound.min is not None else ""
    most = f" ≤ {bound.max:g}" if bound.max is not None else ""
    return f"{bound.key}{least}{' and' if least and most else ''}{most}" if least or most else f"{bound.key} finite"


def _summarize_limits(job: Job) -> dict[str, str]:
    limits = job.limits
    given = {"attempts": str(limits.max_attempts), "grace": format_duration(limits.grace_s)}
    given |= {"wallTime": format_duration(limits.wall_time_s)} if limits.wall_time_s else {}
    given |= {"wasted": format_duration(limits.max_wasted_time_s)} if limits.max_wasted_time_s else {}
    return given | ({"disk": format_size(limits.disk_bytes)} if limits.disk_bytes else {})


def estimate_disk_bytes(job: Job, preflight: PreflightResult) -> int | None:
    """Inputs, and a guess at what is in archives; None when the size of something is not known."""
    staged = [source for source in job.inputs if source.mode != STREAM]
    parts = [(part, source.unpack == "auto") for source in staged for part in _input_parts(source)]
    needs = [_estimate_part_bytes(part, unpack, _find_stat(part, preflight)) for part, unpack in parts]
    known = [need for need in needs if need is not None]
    return sum(known) if len(known) == len(needs) else None


def _estimate_part_bytes(part: Any, unpack: bool, input_stat: InputStat | None) -> int | None:
    size = input_stat.size if input_stat else getattr(part, "size", None)
    if size is None:
        return None
    name = part.name.lower() if isinstance(part, RemoteFile) else ""
    growth = max((factor for end, factor in _UNPACK_GROWTH.items() if name.endswith(end)), default=0.0)
    if not unpack or not growth:
        return int(size)
    return int(size * growth) if _is_unpacked_while_downloading(part) else int(size * (1 + growth))


def _is_unpacked_while_downloading(file: RemoteFile) -> bool:
    """Whether the agent unpacks it on its way, so that the archive itself never lies on the disk."""
    remote = all(url_scheme(ref.url) != "file" for ref in file.locations)
    return remote and not file.name.lower().endswith(_NOT_STREAMABLE_SUFFIXES)
