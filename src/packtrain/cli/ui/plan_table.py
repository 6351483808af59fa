"""The plan of a workflow as a table. Used by plan and run."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from packtrain import formatting
from packtrain.formatting import pluralize
from packtrain.planner.mode_cost import ModeCost
from packtrain.planner.plan_summary import EnvironmentSummary, InputSummary, PlanSummary, StepSummary
from packtrain.planner.stream_planner import STREAM

_MAX_JOBS_SHOWN = 8


def print_plan(out: Console, summary: PlanSummary) -> None:
    """Print the summary of a plan."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in _summary_rows(summary):
        table.add_row(label, text)
    out.print(table)


def _summary_rows(summary: PlanSummary) -> Iterator[tuple[str, Text | str]]:
    yield "run", Text(f"{summary.name} on {summary.engine}, {pluralize(len(summary.jobs), 'job')}", "bold")
    for job in summary.jobs[:_MAX_JOBS_SHOWN] if len(summary.jobs) > 1 else ():
        yield "", Text(" ".join([f"  {job.id}", *(f"{key}={value}" for key, value in job.point.items())]))
    if len(summary.jobs) > _MAX_JOBS_SHOWN:
        yield "", Text(f"  … and {len(summary.jobs) - _MAX_JOBS_SHOWN} more", "dim")
    yield "each job", _format_resources(summary)
    for number, input_ in enumerate(summary.inputs):
        yield "data" if number == 0 else "", _format_input(input_, show_job_count=len(summary.jobs) > 1)
        yield from (("", _format_mode_cost(mode_cost)) for mode_cost in input_.mode_costs)
    if summary.environment:
        lines = _describe_environment(summary.environment)
        yield from (("packages" if number == 0 else "", line) for number, line in enumerate(lines))
    if summary.disk_bytes:
        packages = " and packages" if summary.environment else ""
        size = formatting.format_size(summary.disk_bytes)
        yield "disk", f"about {size} per job for inputs and their contents{packages}"
    for number, (depth, step) in enumerate(_flatten_steps(summary.steps)):
        yield "steps" if number == 0 else "", _format_step(depth, step)
    for number, text in enumerate(summary.expect or ("nothing: only the exit code 0 is checked",)):
        yield "expects" if number == 0 else "", text
    yield "limits", ", ".join(f"{name} {value}" for name, value in summary.limits.items())
    yield "outputs", Text(summary.jobs[0].output.removeprefix("file://") + (" …" if len(summary.jobs) > 1 else ""))


def _format_resources(summary: PlanSummary) -> str:
    resources = summary.resources
    gpus = pluralize(resources["gpus"], "GPU") if resources["gpus"] else "no GPU"
    memory = formatting.format_size(resources["memory_mb"] * 1e6)
    return f"{pluralize(resources['cpus'], 'CPU')}, {memory} of memory, {gpus}"


_REQUIREMENT_LABELS = {
    "min_glibc": "glibc ≥",
    "min_linux": "Linux ≥",
    "min_cuda": "a driver for CUDA ≥",
    "archspec": "",
}


def _describe_environment(environment: EnvironmentSummary) -> Iterator[Text]:
    """Describe packages, sizes, requirements and sources."""
    platform = f" ({environment.platform})" if environment.platform != "linux-64" else ""
    line = Text(f"{environment.manifest}:{environment.name}{platform}: {pluralize(environment.n_packages, 'package')}")
    if environment.use == "site":
        line.append(", installed by the node's own pixi")
    else:
        line.append(f", {formatting.format_size(environment.download_bytes)} to download")
        if environment.n_unknown_sizes:
            line.append(f" and {pluralize(environment.n_unknown_sizes, 'package')} of unknown size")
        line.append(f", about {formatting.format_size(environment.installed_bytes)} installed")
    yield line
    if environment.requires:
        needs = [f"{_REQUIREMENT_LABELS[key]} {value}".strip() for key, value in environment.requires.items()]
        yield Text(f"  needs {', '.join(needs)}")
    yield from (Text(f"  from {source}", "dim") for source in environment.sources)


def _format_input(summary: InputSummary, show_job_count: bool) -> Text:
    size = formatting.format_size(summary.size) if summary.size is not None else "size unknown"
    files = f", {pluralize(summary.n_files, 'file')}" if summary.n_files not in (None, 1) else ""
    jobs = f", {pluralize(summary.n_jobs, 'job')}" if show_job_count else ""
    line = Text(f"{summary.name}: {size}{files}{jobs}  ")
    line.append(summary.url, "dim")
    if summary.error:
        line.append(f"\n! {summary.error}", "yellow")
    return line


def _format_mode_cost(mode_cost: ModeCost) -> Text:
    """Describe the download before the first batch and the disk use; times are unknown at this point."""
    startup = formatting.format_size(mode_cost.startup_bytes) if mode_cost.startup_bytes is not None else "everything"
    if mode_cost.mode == STREAM:
        epoch = f"; {formatting.format_size(mode_cost.bytes_per_epoch)} an epoch" if mode_cost.bytes_per_epoch else ""
        cache = "cached on disk" if mode_cost.caches_reads else "not cached"
        text = f"the index and {startup} before the first batch{epoch}, {cache}"
    else:
        disk = f"; {formatting.format_size(mode_cost.disk_bytes)} of disk" if mode_cost.disk_bytes else ""
        text = f"{startup} before the first batch{disk}"
    return Text(
        f"  {'●' if mode_cost.is_selected else '○'} {mode_cost.mode:<6}  {text}",
        "" if mode_cost.is_selected else "dim",
    )


def _flatten_steps(steps: tuple[StepSummary, ...], depth: int = 0) -> Iterator[tuple[int, StepSummary]]:
    for step in steps:
        yield depth, step
        yield from _flatten_steps(step.steps, depth + 1)


def _format_step(depth: int, step: StepSummary) -> Text:
    first, *more = step.description.strip().splitlines() or [""]
    line = Text("  " * depth + f"{step.name or step.kind}  ")
    line.append(first + (" …" if more else ""), "dim")
    if step.image:
        line.append(f"  [{step.image}]", "magenta")
    return line
