"""packtrain why"""

from __future__ import annotations

import time
from typing import Any

import click
from rich.console import Console

from packtrain import services
from packtrain.cli.ui.output import json_option, print_next_commands, print_result
from packtrain.plan import RunFolder
from packtrain.views.explain import ExplainContext, JobExplanation, explain_job, explain_run

_MAX_GROUPS_SHOWN = 10


@click.command(name="why")
@click.argument("target", metavar="[RUN[.JOB]]", default="")
@json_option
def command(target: str, as_json: bool) -> None:
    """Explain what happened, whose fault it was, what packtrain did and what you can do."""
    store = services.open_store()
    row, job = services.find_job(store, target)
    state = services.refresh_state(store, row)
    attended = services.live_supervisor_lease(store, row.run) is not None
    bad = services.load_initially_avoided(row)
    setting = ExplainContext(state, RunFolder(row.folder), attended, services.load_policy_config(row), time.time(), bad)
    jobs = [state.jobs[job]] if job else list(state.jobs.values())
    told, of_run = [explain_job(one, setting) for one in jobs], explain_run(setting)
    data: dict[str, Any] = {"run": row.run, "about": of_run, "jobs": [one.to_json() for one in told]}
    print_result(
        as_json,
        data,
        lambda out: _print_explanations(out, row.run, told, of_run, is_single_job=job is not None or len(told) == 1),
    )


def _print_explanations(
    out: Console, run: str, explanations: list[JobExplanation], run_notes: list[str], is_single_job: bool
) -> None:
    """Jobs with the same story are told once."""
    for sentence in run_notes:
        out.print(f"{sentence}\n", style="bold", markup=False)
    stories: dict[tuple[str, ...], list[JobExplanation]] = {}
    for one in explanations:
        stories.setdefault(one.group_key, []).append(one)
    for alike in list(stories.values())[:_MAX_GROUPS_SHOWN]:
        names = ", ".join(one.job_id for one in alike[:8]) + (" …" if len(alike) > 8 else "")
        head = f"job {names}" if len(alike) == 1 else f"{len(alike)} jobs ({names})"
        if not is_single_job or len(alike) > 1:
            out.print(f"[bold]{head}[/]")
        for label, sentence in alike[0].labelled_lines():
            out.print(f"[dim]{label:>9}[/]  ", end="")
            out.print(sentence, markup=False)
        out.print()
    first = next((one for one in explanations if one.has_failed), None)
    if first:
        print_next_commands(
            (f"packtrain logs {run}.{first.job_id}", "all that its steps wrote"),
            (f"packtrain resume {run}", "try again"),
        )
