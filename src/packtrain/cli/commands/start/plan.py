"""packtrain plan"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from packtrain import formatting
from packtrain.cli.ui.options import expect_option
from packtrain.cli.ui.output import console, count, fitting_options, json_option, say_next, show, show_problems
from packtrain.errors import EXIT_USAGE
from packtrain.plan import Plan
from packtrain.planner.mode_cost import ShownWay
from packtrain.planner.plan_summary import Explanation, ShownInput, ShownStep
from packtrain.planner.plan_summary import explain as explain_plan
from packtrain.planner.preflight import Survey, refusals, survey, with_sizes
from packtrain.planner.published_digests import digest_problems
from packtrain.planner.stream_planner import STREAM
from packtrain.spec.diagnostics import Origin, Problem
from packtrain.spec.user_config import load_settings
from packtrain.submission import prepare

_MOST_JOBS = 8


@click.command(name="plan")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--on", "engine", default="local", show_default=True, help="Where it would run.")
@fitting_options
@expect_option
@click.option("--offline", is_flag=True, help="Do not ask the inputs for their sizes.")
@json_option
def command(
    file: Path,
    engine: str,
    no_container: bool,
    no_gpu: bool,
    expect: tuple[str, ...],
    offline: bool,
    as_json: bool,
) -> None:
    """Show what would be done: jobs, data and sizes, resources, steps, what is expected, where outputs go."""
    prepared = prepare.prepare(file, engine, strict=False, no_container=no_container, no_gpu=no_gpu, expect=expect)
    show_problems(prepared.problems)
    if prepared.failed:
        raise click.exceptions.Exit(EXIT_USAGE)
    _, explained = explain(prepared, offline=offline)
    show(as_json, explained.to_data(), lambda out: show_plan(out, explained))
    if not as_json:
        say_next((f"packtrain run {file}", "do it"))


def explain(prepared: prepare.Prepared, *, offline: bool) -> tuple[prepare.Prepared, Explanation]:
    """The plan with the sizes that its inputs told, and its explanation."""
    assert prepared.planned is not None
    with console().status("asking the inputs for their sizes …") if console().is_terminal else nullcontext():
        seen = Survey() if offline else survey(prepared.plan, prepared.resolved.values)
    planned = replace(prepared.planned, plan=with_sizes(prepared.plan, seen))
    impossible = digest_problems(planned.plan, prepared.origin)
    if impossible:
        show_problems(impossible)
        raise click.exceptions.Exit(EXIT_USAGE)
    explained = explain_plan(planned.plan, seen)
    lacking = _refusals(planned.plan, seen, prepared.origin) if planned.plan.engine != "local" else ()
    problems = tuple(dict.fromkeys((*prepared.problems, *lacking)))
    return replace(prepared, planned=planned, disk_bytes=explained.disk_bytes, problems=problems), explained


def _refusals(plan: Plan, seen: Survey, origin: Origin) -> tuple[Problem, ...]:
    return refusals(plan, seen, origin, load_settings().htcondor.lines)


def show_plan(out: Console, plan: Explanation) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in _rows(plan):
        table.add_row(label, text)
    out.print(table)


def _rows(plan: Explanation) -> Iterator[tuple[str, Text | str]]:
    yield "run", Text(f"{plan.name} on {plan.engine}, {count(len(plan.jobs), 'job')}", "bold")
    for job in plan.jobs[:_MOST_JOBS] if len(plan.jobs) > 1 else ():
        yield "", Text(" ".join([f"  {job.id}", *(f"{key}={value}" for key, value in job.point.items())]))
    if len(plan.jobs) > _MOST_JOBS:
        yield "", Text(f"  … and {len(plan.jobs) - _MOST_JOBS} more", "dim")
    yield "each job", _resources(plan)
    for number, shown in enumerate(plan.inputs):
        yield "data" if number == 0 else "", _input(shown, many=len(plan.jobs) > 1)
        yield from (("", _way(way)) for way in shown.ways)
    if plan.disk_bytes:
        yield "disk", f"about {formatting.size(plan.disk_bytes)} a job for inputs and what is in them"
    for number, (depth, step) in enumerate(_flat(plan.steps)):
        yield "steps" if number == 0 else "", _step(depth, step)
    for number, text in enumerate(plan.expect or ("nothing: an exit code of 0 is all that is checked",)):
        yield "expects" if number == 0 else "", text
    yield "limits", ", ".join(f"{name} {value}" for name, value in plan.limits.items())
    yield "outputs", Text(plan.jobs[0].output.removeprefix("file://") + (" …" if len(plan.jobs) > 1 else ""))


def _resources(plan: Explanation) -> str:
    wanted = plan.resources
    gpus = count(wanted["gpus"], "GPU") if wanted["gpus"] else "no GPU"
    return f"{count(wanted['cpus'], 'CPU')}, {formatting.size(wanted['memory_mb'] * 1e6)} of memory, {gpus}"


def _input(shown: ShownInput, many: bool) -> Text:
    told = formatting.size(shown.size) if shown.size is not None else "size unknown"
    files = f", {count(shown.files, 'file')}" if shown.files not in (None, 1) else ""
    used = f", {count(shown.jobs, 'job')}" if many else ""
    line = Text(f"{shown.name}: {told}{files}{used}  ")
    line.append(shown.address, "dim")
    if shown.trouble:
        line.append(f"\n! {shown.trouble}", "yellow")
    return line


def _way(way: ShownWay) -> Text:
    """What has to come before the first batch, and how much disk it takes; no times, which nobody knows yet."""
    first = formatting.size(way.first_bytes) if way.first_bytes is not None else "everything"
    if way.mode == STREAM:
        each = f"; {formatting.size(way.epoch_bytes)} an epoch" if way.epoch_bytes else ""
        words = f"the index and {first} before the first batch{each}, {'kept on disk' if way.keeps else 'nothing kept'}"
    else:
        disk = f"; {formatting.size(way.disk_bytes)} of disk" if way.disk_bytes else ""
        words = f"{first} before the first batch{disk}"
    return Text(f"  {'●' if way.chosen else '○'} {way.mode:<6}  {words}", "" if way.chosen else "dim")


def _flat(steps: tuple[ShownStep, ...], depth: int = 0) -> Iterator[tuple[int, ShownStep]]:
    for step in steps:
        yield depth, step
        yield from _flat(step.steps, depth + 1)


def _step(depth: int, step: ShownStep) -> Text:
    first, *more = step.text.strip().splitlines() or [""]
    line = Text("  " * depth + f"{step.name or step.kind}  ")
    line.append(first + (" …" if more else ""), "dim")
    if step.image:
        line.append(f"  [{step.image}]", "magenta")
    return line
