"""A plan as people want to see it before anything is spent: plain data for a table or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from packtrain.plan import Bound, Expect, For, Group, Input, Item, Job, Launch, Plan, Run, Step, Use
from packtrain.planner.mode_cost import ShownWay, ways_of
from packtrain.planner.preflight import Finding, Survey
from packtrain.planner.stream_planner import STREAM
from packtrain.spec.units import show_duration, show_size
from packtrain.transfer.urls import scheme_of, shown

# How much larger unpacked data usually is than its archive; a guess, and said to be one.
_GROWTH = {
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
_COMES_AS_A_FILE = (".zip",)


@dataclass(frozen=True)
class ShownInput:
    name: str  # input, or its name below inputs
    address: str
    size: int | None
    files: int | None
    reachable: bool | None  # none: it was not asked
    trouble: str
    unpack: str
    jobs: int  # how many jobs use it
    ways: tuple[ShownWay, ...] = ()  # how it could come, where there is a choice


@dataclass(frozen=True)
class ShownStep:
    name: str
    kind: str
    text: str  # the command, or what the step does with those below
    image: str = ""
    steps: tuple[ShownStep, ...] = ()


@dataclass(frozen=True)
class ShownJob:
    id: str
    point: dict[str, str]
    output: str


@dataclass(frozen=True)
class Explanation:
    run: str
    name: str
    engine: str
    jobs: tuple[ShownJob, ...]
    inputs: tuple[ShownInput, ...]
    resources: dict[str, Any]  # of each job
    steps: tuple[ShownStep, ...]  # of the first job
    expect: tuple[str, ...]
    limits: dict[str, str]
    disk_bytes: int | None  # what one job needs by a guess; none: a size is not known

    def to_data(self) -> dict[str, Any]:
        return asdict(self)


def explain(plan: Plan, survey: Survey | None = None) -> Explanation:
    """All jobs of a plan differ by their point only, so the first one shows resources, steps and limits."""
    survey = survey or Survey()
    first = plan.jobs[0]
    return Explanation(
        run=plan.run,
        name=plan.name,
        engine=plan.engine,
        jobs=tuple(_job(job) for job in plan.jobs),
        inputs=_inputs(plan, survey),
        resources=_resources(first),
        steps=_steps(first.steps),
        expect=tuple(_expectation(wanted) for wanted in first.expect),
        limits=_limits(first),
        disk_bytes=disk_need(first, survey),
    )


def _job(job: Job) -> ShownJob:
    point = {variable.key: str(variable.value) for variable in job.point}
    return ShownJob(job.id, point, shown(job.output.ref.url) if job.output else "")


def _inputs(plan: Plan, survey: Survey) -> tuple[ShownInput, ...]:
    """Each file or prefix once, with the number of jobs that use it."""
    users: dict[tuple[str, Any], list[Input]] = {}
    for job in plan.jobs:
        for source in job.inputs:
            for part in _shown_parts(source):
                users.setdefault((source.name, part), []).append(source)
    promised = plan.jobs[0].limits.disk_bytes
    return tuple(_shown_input(used[0], part, survey, len(used), promised) for (_, part), used in users.items())


def _shown_parts(source: Input) -> Sequence[Any]:
    """All archives of what is streamed are one thing."""
    return [source] if source.mode == STREAM else _parts(source)


def _parts(source: Input) -> Sequence[Any]:
    return [source.prefix] if source.prefix else source.items


def _found(part: Any, survey: Survey) -> Finding | None:
    if isinstance(part, Input):
        return _together([_found(one, survey) for one in _parts(part)])
    return survey.of_item(part) if isinstance(part, Item) else survey.of_prefix(part)


def _together(findings: Sequence[Finding | None]) -> Finding | None:
    known = [finding for finding in findings if finding is not None]
    if len(known) < len(findings):
        return None
    sizes = [finding.size for finding in known if finding.size is not None]
    troubled = next((finding for finding in known if finding.trouble), known[0])
    files = sum(finding.files or 0 for finding in known)
    return replace(troubled, size=sum(sizes) if len(sizes) == len(known) else None, files=files)


def _ways(source: Input, part: Any, survey: Survey, size: int | None, promised: int | None) -> tuple[ShownWay, ...]:
    if part not in (source, source.prefix) and len(source.items) > 1:
        return ()  # several files have no line of their own
    staged = replace(source, mode="stage", unpack="auto" if source.prefix is None else source.unpack)
    needs = [_need(one, staged.unpack == "auto", _found(one, survey)) for one in _parts(staged)]
    known = [need for need in needs if need is not None]
    return ways_of(source, size, sum(known) if len(known) == len(needs) else None, promised)


def _shown_input(source: Input, part: Any, survey: Survey, jobs: int, promised: int | None) -> ShownInput:
    found, unpack = _found(part, survey), source.unpack
    first = _parts(part)[0] if isinstance(part, Input) else part
    ref = first.sources[0] if isinstance(first, Item) else first
    size = found.size if found else getattr(part, "size", None)
    return ShownInput(
        name=source.name or "input",
        address=shown(ref.url),
        size=size,
        files=found.files if found else None,
        reachable=found.reachable if found else None,
        trouble=found.trouble if found else "",
        unpack=unpack,
        jobs=jobs,
        ways=_ways(source, part, survey, size, promised),
    )


def _resources(job: Job) -> dict[str, Any]:
    gpu = {key: value for key, value in asdict(job.resources.gpu).items() if value is not None}
    wanted = {"tasks": job.resources.tasks, "cpus": job.resources.cpus, "memory_mb": job.resources.memory_mb}
    return {**wanted, "gpus": job.resources.gpus, **({"gpu": gpu} if gpu else {})}


def _steps(steps: Sequence[Step]) -> tuple[ShownStep, ...]:
    return tuple(_step(step) for step in steps)


def _step(step: Step) -> ShownStep:
    below = () if isinstance(step.action, Run) else _steps(step.action.steps)
    extra = tuple(
        ShownStep(word, word, "", steps=_steps(steps))
        for word, steps in (("catch", step.catch), ("finally", step.finally_))
        if steps
    )
    image = step.action.container.image if isinstance(step.action, Run) and step.action.container else ""
    condition = f"if [[ {step.condition} ]]: " if step.condition else ""
    return ShownStep(step.name, step.action.kind, condition + _text(step.action), image, below + extra)


def _text(action: Run | Group | For | Launch | Use) -> str:
    if isinstance(action, Run):
        return action.command or "the image's entrypoint"
    if isinstance(action, For):
        way = "at once" if action.parallel else "one after the other"
        return f"{len(action.values)} rounds {way}"
    if isinstance(action, Launch):
        return f"in the background{f' as {action.handle}' if action.handle else ''}"
    return action.source if isinstance(action, Use) else ""


def _expectation(wanted: Expect) -> str:
    """`*.pt: at least 1 file, each at least 1.0 MB, checked by …`"""
    parts = [f"at least {wanted.min_count} file{'s' if wanted.min_count != 1 else ''}"]
    parts += [f"at most {wanted.max_count}"] if wanted.max_count is not None else []
    parts += [f"each at least {show_size(wanted.min_bytes)}"] if wanted.min_bytes > 1 else []
    parts += [f"each at most {show_size(wanted.max_bytes)}"] if wanted.max_bytes is not None else []
    parts += ["a model of torch with finite values"] if wanted.torch else []
    parts += [_bound(bound) for bound in wanted.json] or ["valid JSON"] if wanted.json is not None else []
    parts += ["a whole archive"] if wanted.archive else []
    parts += [f"checked by `{wanted.command}`"] if wanted.command else []
    return f"{wanted.path}: {', '.join(parts)}"


def _bound(bound: Bound) -> str:
    """`accuracy ≥ 0.5`"""
    least = f" ≥ {bound.min:g}" if bound.min is not None else ""
    most = f" ≤ {bound.max:g}" if bound.max is not None else ""
    return f"{bound.key}{least}{' and' if least and most else ''}{most}" if least or most else f"{bound.key} finite"


def _limits(job: Job) -> dict[str, str]:
    limits = job.limits
    given = {"attempts": str(limits.attempts), "grace": show_duration(limits.grace_s)}
    given |= {"wallTime": show_duration(limits.wall_time_s)} if limits.wall_time_s else {}
    given |= {"wasted": show_duration(limits.wasted_s)} if limits.wasted_s else {}
    return given | ({"disk": show_size(limits.disk_bytes)} if limits.disk_bytes else {})


def disk_need(job: Job, survey: Survey) -> int | None:
    """Inputs, and a guess at what is in archives; None when the size of something is not known."""
    staged = [source for source in job.inputs if source.mode != STREAM]
    parts = [(part, source.unpack == "auto") for source in staged for part in _parts(source)]
    needs = [_need(part, unpack, _found(part, survey)) for part, unpack in parts]
    known = [need for need in needs if need is not None]
    return sum(known) if len(known) == len(needs) else None


def _need(part: Any, unpack: bool, found: Finding | None) -> int | None:
    size = found.size if found else getattr(part, "size", None)
    if size is None:
        return None
    name = part.name.lower() if isinstance(part, Item) else ""
    growth = max((factor for end, factor in _GROWTH.items() if name.endswith(end)), default=0.0)
    if not unpack or not growth:
        return int(size)
    return int(size * growth) if _streams(part) else int(size * (1 + growth))


def _streams(archive: Item) -> bool:
    """Whether the agent unpacks it on its way, so that the archive itself never lies on the disk."""
    remote = all(scheme_of(ref.url) != "file" for ref in archive.sources)
    return remote and not archive.name.lower().endswith(_COMES_AS_A_FILE)
