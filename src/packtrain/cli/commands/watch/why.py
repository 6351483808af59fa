"""packtrain why"""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console
from rich.text import Text

from packtrain import services
from packtrain.cli.ui.output import json_option, print_next_commands, print_result
from packtrain.runs.explain import make_explain_context
from packtrain.views.explain import JobExplanation, explain_job, explain_run

_MAX_GROUPS_SHOWN = 10
_MAX_JOB_IDS_SHOWN = 8


@click.command(name="why")
@click.argument("target", metavar="[RUN[.JOB]]", default="")
@json_option
def command(target: str, as_json: bool) -> None:
    """Explain what happened to a run or job, what caused it, what packtrain did and what you can do."""
    store = services.open_store()
    run_info, job_id = services.find_job(store, target)
    context = make_explain_context(store, run_info)
    state = context.state
    jobs = [state.jobs[job_id]] if job_id else list(state.jobs.values())
    explanations, run_notes = [explain_job(job, context) for job in jobs], explain_run(context)
    data: dict[str, Any] = {
        "run": run_info.run,
        "notes": run_notes,
        "jobs": [explanation.to_json() for explanation in explanations],
    }
    is_single_job = job_id is not None or len(jobs) == 1
    print_result(
        as_json, data, lambda out: _print_explanations(out, run_info.run, explanations, run_notes, is_single_job)
    )


def _print_explanations(
    out: Console, run: str, explanations: list[JobExplanation], run_notes: list[str], is_single_job: bool
) -> None:
    """Print the notes on the run, then one explanation for each group of jobs with the same history."""
    for note in run_notes:
        out.print(f"{note}\n", style="bold")
    groups: dict[tuple[str, ...], list[JobExplanation]] = {}
    for explanation in explanations:
        groups.setdefault(explanation.group_key, []).append(explanation)
    for group in list(groups.values())[:_MAX_GROUPS_SHOWN]:
        if not is_single_job or len(group) > 1:
            out.print(_group_heading(group), style="bold")
        for label, text in group[0].labelled_lines():
            out.print(Text.assemble((f"{label:>9}  ", "dim"), text))
        out.print()
    first_failed = next((explanation for explanation in explanations if explanation.has_failed), None)
    if first_failed:
        print_next_commands(
            (f"packtrain logs {run}.{first_failed.job_id}", "show all output of its steps"),
            (f"packtrain resume {run}", "try again"),
        )


def _group_heading(group: list[JobExplanation]) -> str:
    """Return `job 3` or `2 jobs (3, 5)`."""
    job_ids = ", ".join(explanation.job_id for explanation in group[:_MAX_JOB_IDS_SHOWN])
    job_ids += " …" if len(group) > _MAX_JOB_IDS_SHOWN else ""
    return f"job {job_ids}" if len(group) == 1 else f"{len(group)} jobs ({job_ids})"
