"""packtrain why"""

from __future__ import annotations

import time
from typing import Any

import click
from rich.console import Console

from packtrain import services
from packtrain.cli.ui.output import json_option, say_next, show
from packtrain.plan import RunFolder
from packtrain.views.explain import Explanation, Setting, explain_job, explain_run

_MOST = 10


@click.command(name="why")
@click.argument("target", metavar="[RUN[.JOB]]", default="")
@json_option
def command(target: str, as_json: bool) -> None:
    """Explain what happened, whose fault it was, what packtrain did and what you can do."""
    store = services.open_store()
    row, job = services.find_job(store, target)
    state = services.refresh(store, row)
    attended = services.supervisor_lease(store, row.run) is not None
    bad = services.avoided_from_start(row)
    setting = Setting(state, RunFolder(row.folder), attended, services.rules_of(row), time.time(), bad)
    jobs = [state.jobs[job]] if job else list(state.jobs.values())
    told, of_run = [explain_job(one, setting) for one in jobs], explain_run(setting)
    data: dict[str, Any] = {"run": row.run, "about": of_run, "jobs": [one.to_data() for one in told]}
    show(as_json, data, lambda out: _text(out, row.run, told, of_run, alone=job is not None or len(told) == 1))


def _text(out: Console, run: str, told: list[Explanation], of_run: list[str], alone: bool) -> None:
    """Jobs with the same story are told once."""
    for sentence in of_run:
        out.print(f"{sentence}\n", style="bold", markup=False)
    stories: dict[tuple[str, ...], list[Explanation]] = {}
    for one in told:
        stories.setdefault(one.story, []).append(one)
    for alike in list(stories.values())[:_MOST]:
        names = ", ".join(one.job for one in alike[:8]) + (" …" if len(alike) > 8 else "")
        head = f"job {names}" if len(alike) == 1 else f"{len(alike)} jobs ({names})"
        if not alone or len(alike) > 1:
            out.print(f"[bold]{head}[/]")
        for label, sentence in alike[0].lines():
            out.print(f"[dim]{label:>9}[/]  ", end="")
            out.print(sentence, markup=False)
        out.print()
    first = next((one for one in told if one.failed), None)
    if first:
        say_next(
            (f"packtrain logs {run}.{first.job}", "all that its steps wrote"), (f"packtrain resume {run}", "try again")
        )
