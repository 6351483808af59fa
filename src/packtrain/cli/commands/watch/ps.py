"""packtrain ps"""

from __future__ import annotations

import time
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from packtrain import formatting, services
from packtrain.cli.ui.output import console, json_option, print_next_commands, print_result
from packtrain.state import JobStatus, RunState
from packtrain.state.run import run_status
from packtrain.store import RunInfo, SqliteStore
from packtrain.views.event_feed import EventFeed
from packtrain.views.job_json import job_to_json
from packtrain.views.plain import PlainFormatter
from packtrain.views.run_table import render_run, styled_status

_MAX_RECENT_RUNS = 15


@click.command(name="ps")
@click.argument("run", default="")
@click.option("-w", "--watch", is_flag=True, help="Follow until the run ends.")
@click.option("-a", "--all", "every", is_flag=True, help=f"All runs, not only the last {_MAX_RECENT_RUNS}.")
@json_option
def command(run: str, watch: bool, show_all: bool, as_json: bool) -> None:
    """List runs, or the jobs of a run; -w watches a run (the newest, if none is named)."""
    store = services.open_store()
    if watch:
        _watch_run(store, services.find_run(store, run), as_json)
    elif run:
        _print_run(store, services.find_run(store, run), as_json)
    else:
        _print_runs(store, show_all, as_json)


def _print_run(store: SqliteStore, run_info: RunInfo, as_json: bool) -> None:
    state = services.refresh_state(store, run_info)
    attended = services.live_supervisor_lease(store, run_info.run) is not None
    print_result(
        as_json,
        run_data(run_info, state, attended),
        lambda out: out.print(render_run(state, attended, out.width, max_rows=10_000)),
    )
    if not as_json:
        _print_next_commands_for(run_info, state, attended)


def run_data(run_info: RunInfo, state: RunState, has_live_supervisor: bool) -> dict[str, Any]:
    return {
        "run": run_info.run,
        "name": run_info.name,
        "engine": run_info.engine,
        "folder": str(run_info.folder),
        "created": run_info.created_at,
        "status": run_status(state, has_live_supervisor),
        "supervised": has_live_supervisor,
        "jobs": [job_to_json(job) for job in state.jobs.values()],
    }


def _print_next_commands_for(run_info: RunInfo, state: RunState, has_live_supervisor: bool) -> None:
    if has_live_supervisor:
        print_next_commands(
            (f"packtrain ps -w {run_info.run}", "watch it"),
            (f"packtrain logs -f {run_info.run}", "what the steps write"),
        )
    elif not state.is_finished:
        print_next_commands((f"packtrain resume {run_info.run}", "nobody supervises it: go on"))
    elif state.count_jobs(JobStatus.FAILED):
        print_next_commands(
            (f"packtrain why {run_info.run}", "what happened"), (f"packtrain resume {run_info.run}", "try again")
        )
    else:
        print_next_commands((f"packtrain outputs {run_info.run}", "what came home"))


def _print_runs(store: SqliteStore, show_all: bool, as_json: bool) -> None:
    runs = store.list_runs()
    rows = [(row, services.refresh_state(store, row)) for row in (runs if show_all else runs[-_MAX_RECENT_RUNS:])]
    attended = {row.run: services.live_supervisor_lease(store, row.run) is not None for row, _ in rows}
    data = [run_data(row, state, attended[row.run]) for row, state in rows]
    print_result(as_json, data, lambda out: _print_run_table(out, rows, attended))


def _print_run_table(out: Console, rows: list[tuple[RunInfo, RunState]], has_live_supervisor: dict[str, bool]) -> None:
    if not rows:
        out.print("no runs yet; start one with `packtrain run FILE`")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("run", "status", "jobs", "engine", "started"):
        table.add_column(title)
    for row, state in rows:
        done = state.count_jobs(JobStatus.SUCCEEDED)
        age = formatting.format_age(time.time() - row.created_at)
        status = styled_status(run_status(state, has_live_supervisor[row.run]))
        table.add_row(row.run, status, f"{done}/{len(state.jobs)}", row.engine, age)
    out.print(table)
    print_next_commands((f"packtrain ps {rows[-1][0].run}", "its jobs"), ("packtrain ps -w", "watch the newest"))


def _watch_run(store: SqliteStore, run_info: RunInfo, as_json: bool) -> None:
    """Until the run ends or nobody supervises it any more."""
    feed = EventFeed(store, run_info.run)
    if as_json or not console().is_terminal:
        _print_events_until_done(store, feed, as_json)
        return
    with Live(console=console(), refresh_per_second=10) as live:
        while True:
            feed.poll()
            attended = services.live_supervisor_lease(store, run_info.run) is not None
            live.update(render_run(feed.state, attended, console().width, max_rows=max(5, console().height - 4)))
            if feed.state.is_finished or not attended:
                return
            time.sleep(0.2)


def _print_events_until_done(store: SqliteStore, feed: EventFeed, as_json: bool) -> None:
    lines: PlainFormatter | None = None
    while True:
        attended = services.live_supervisor_lease(store, feed.state.run) is not None
        for event in feed.poll():
            lines = lines or PlainFormatter(len(feed.state.jobs))
            text = event.to_json() if as_json else lines.format_event(event)
            if text:
                click.echo(text)
        if feed.state.is_finished or not attended:
            return
        time.sleep(0.2)
