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
from packtrain.cli.ui.output import (
    console,
    json_option,
    pluralize,
    print_diagnostics,
    print_next_commands,
    print_result,
    resource_override_options,
)
from packtrain.errors import EXIT_USAGE
from packtrain.plan import Plan
from packtrain.planner.mode_cost import ModeCost
from packtrain.planner.plan_summary import InputSummary, PlanSummary, StepSummary
from packtrain.planner.plan_summary import summarize_plan as explain_plan
from packtrain.planner.preflight import PreflightResult, add_sizes, check_input_access, run_preflight
from packtrain.planner.published_digests import check_digests
from packtrain.planner.stream_planner import STREAM
from packtrain.spec.diagnostics import Diagnostic, SourceMap
from packtrain.spec.user_config import load_user_config
from packtrain.submission import prepare

_MAX_JOBS_SHOWN = 8


@click.command(name="plan")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--on", "engine", default="local", show_default=True, help="Where it would run.")
@resource_override_options
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
    prepared = prepare.prepare_submission(
        file, engine, strict=False, no_container=no_container, no_gpu=no_gpu, expect=expect
    )
    print_diagnostics(prepared.diagnostics)
    if prepared.has_errors:
        raise click.exceptions.Exit(EXIT_USAGE)
    _, explained = run_submission_preflight(prepared, offline=offline)
    print_result(as_json, explained.to_data(), lambda out: print_plan(out, explained))
    if not as_json:
        print_next_commands((f"packtrain run {file}", "do it"))


def run_submission_preflight(
    submission: prepare.Submission, *, offline: bool
) -> tuple[prepare.Submission, PlanSummary]:
    """The plan with the sizes that its inputs told, and its explanation."""
    assert submission.plan_result is not None
    with console().status("asking the inputs for their sizes …") if console().is_terminal else nullcontext():
        seen = PreflightResult() if offline else run_preflight(submission.plan, submission.resolved_secrets.values)
    planned = replace(submission.plan_result, plan=add_sizes(submission.plan, seen))
    impossible = check_digests(planned.plan, submission.source_map)
    if impossible:
        print_diagnostics(impossible)
        raise click.exceptions.Exit(EXIT_USAGE)
    explained = explain_plan(planned.plan, seen)
    lacking = _check_input_access(planned.plan, seen, submission.source_map) if planned.plan.engine != "local" else ()
    problems = tuple(dict.fromkeys((*submission.diagnostics, *lacking)))
    return replace(submission, plan_result=planned, disk_bytes=explained.disk_bytes, diagnostics=problems), explained


def _check_input_access(plan: Plan, preflight: PreflightResult, source_map: SourceMap) -> tuple[Diagnostic, ...]:
    return check_input_access(plan, preflight, source_map, load_user_config().htcondor.submit_commands)


def print_plan(out: Console, summary: PlanSummary) -> None:
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
    for number, shown in enumerate(summary.inputs):
        yield "data" if number == 0 else "", _format_input(shown, show_job_count=len(summary.jobs) > 1)
        yield from (("", _format_mode_cost(way)) for way in shown.mode_costs)
    if summary.disk_bytes:
        yield "disk", f"about {formatting.format_size(summary.disk_bytes)} a job for inputs and what is in them"
    for number, (depth, step) in enumerate(_flatten_steps(summary.steps)):
        yield "steps" if number == 0 else "", _format_step(depth, step)
    for number, text in enumerate(summary.expect or ("nothing: an exit code of 0 is all that is checked",)):
        yield "expects" if number == 0 else "", text
    yield "limits", ", ".join(f"{name} {value}" for name, value in summary.limits.items())
    yield "outputs", Text(summary.jobs[0].output.removeprefix("file://") + (" …" if len(summary.jobs) > 1 else ""))


def _format_resources(summary: PlanSummary) -> str:
    wanted = summary.resources
    gpus = pluralize(wanted["gpus"], "GPU") if wanted["gpus"] else "no GPU"
    return f"{pluralize(wanted['cpus'], 'CPU')}, {formatting.format_size(wanted['memory_mb'] * 1e6)} of memory, {gpus}"


def _format_input(input_summary: InputSummary, show_job_count: bool) -> Text:
    told = formatting.format_size(input_summary.size) if input_summary.size is not None else "size unknown"
    files = f", {pluralize(input_summary.n_files, 'file')}" if input_summary.n_files not in (None, 1) else ""
    used = f", {pluralize(input_summary.n_jobs, 'job')}" if show_job_count else ""
    line = Text(f"{input_summary.name}: {told}{files}{used}  ")
    line.append(input_summary.url, "dim")
    if input_summary.error:
        line.append(f"\n! {input_summary.error}", "yellow")
    return line


def _format_mode_cost(mode_cost: ModeCost) -> Text:
    """What has to come before the first batch, and how much disk it takes; no times, which nobody knows yet."""
    first = formatting.format_size(mode_cost.startup_bytes) if mode_cost.startup_bytes is not None else "everything"
    if mode_cost.mode == STREAM:
        each = f"; {formatting.format_size(mode_cost.bytes_per_epoch)} an epoch" if mode_cost.bytes_per_epoch else ""
        words = f"the index and {first} before the first batch{each}, {'kept on disk' if mode_cost.caches_reads else 'nothing kept'}"
    else:
        disk = f"; {formatting.format_size(mode_cost.disk_bytes)} of disk" if mode_cost.disk_bytes else ""
        words = f"{first} before the first batch{disk}"
    return Text(
        f"  {'●' if mode_cost.is_selected else '○'} {mode_cost.mode:<6}  {words}",
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
