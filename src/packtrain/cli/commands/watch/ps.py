"""packtrain ps"""

from __future__ import annotations

import time

import click
from rich.console import Console
from rich.table import Table

from packtrain import api, formatting
from packtrain.cli.ui.output import console, json_option, print_json_text, print_line, print_next_commands, print_result
from packtrain.views.event_lines import EventLineFormatter
from packtrain.views.run_table import styled_status

_MAX_RECENT_RUNS = 15


@click.command(name="ps")
@click.argument("run", default="")
@click.option("-w", "--watch", is_flag=True, help="Watch until the run ends.")
@click.option("-a", "--all", "show_all", is_flag=True, help=f"List all runs, not only the last {_MAX_RECENT_RUNS}.")
@json_option
def command(run: str, watch: bool, show_all: bool, as_json: bool) -> None:
    """List runs, or the jobs of RUN; -w watches a run (default: the newest)."""
    if watch:
        _watch_run(api.get_run(run), as_json)
    elif run:
        _print_run(api.get_run(run), as_json)
    else:
        _print_runs(api.list_runs(None if show_all else _MAX_RECENT_RUNS)[::-1], as_json)


def _print_run(run: api.Run, as_json: bool) -> None:
    print_result(as_json, run.to_dict(), lambda out: out.print(run.render(out.width, max_rows=10_000)))
    if not as_json:
        _print_next_commands_for(run)


def _print_next_commands_for(run: api.Run) -> None:
    status = run.status
    if status == "running":
        print_next_commands(
            (f"packtrain ps -w {run.id}", "watch it"),
            (f"packtrain logs -f {run.id}", "follow the output of the steps"),
        )
    elif status in ("interrupted", "orphaned"):
        print_next_commands((f"packtrain resume {run.id}", "no supervisor is running; resume it"))
    elif status == "failed":
        print_next_commands(
            (f"packtrain why {run.id}", "explain what happened"), (f"packtrain resume {run.id}", "try again")
        )
    else:
        print_next_commands((f"packtrain outputs {run.id}", "list the outputs"))


def _print_runs(runs: list[api.Run], as_json: bool) -> None:
    if as_json:
        print_result(as_json, [run.to_dict() for run in runs], lambda out: None)
    else:
        _print_run_table(console(), runs)


def _print_run_table(out: Console, runs: list[api.Run]) -> None:
    if not runs:
        out.print("no runs yet; start one with `packtrain run FILE`")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("run", "status", "jobs", "engine", "started"):
        table.add_column(title, overflow="fold")
    for run in runs:
        counts = run.job_counts
        done = f"{counts.get('succeeded', 0)}/{sum(counts.values())}"
        age = formatting.format_age(time.time() - run.created_at)
        table.add_row(run.id, styled_status(run.status), done, run.engine, age)
    out.print(table)
    print_next_commands((f"packtrain ps {runs[-1].id}", "list its jobs"), ("packtrain ps -w", "watch the newest"))


def _watch_run(run: api.Run, as_json: bool) -> None:
    """Show the run until it ends or has no live supervisor."""
    if console().is_terminal and not as_json:
        run.show()
        return
    formatter = EventLineFormatter(len(run.jobs))
    for event in run.follow():
        text = event.to_json() if as_json else formatter.format_event(event)
        if text:
            (print_json_text if as_json else print_line)(text)
