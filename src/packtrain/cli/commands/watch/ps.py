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
from packtrain.views.event_lines import EventLineFormatter
from packtrain.views.job_json import job_to_json
from packtrain.views.run_table import render_run, styled_status

_MAX_RECENT_RUNS = 15


@click.command(name="ps")
@click.argument("run", default="")
@click.option("-w", "--watch", is_flag=True, help="Watch until the run ends.")
@click.option("-a", "--all", "show_all", is_flag=True, help=f"List all runs, not only the last {_MAX_RECENT_RUNS}.")
@json_option
def command(run: str, watch: bool, show_all: bool, as_json: bool) -> None:
    """List runs, or the jobs of RUN; -w watches a run (default: the newest)."""
    store = services.open_store()
    if watch:
        _watch_run(store, services.find_run(store, run), as_json)
    elif run:
        _print_run(store, services.find_run(store, run), as_json)
    else:
        _print_runs(store, show_all, as_json)


def _print_run(store: SqliteStore, run_info: RunInfo, as_json: bool) -> None:
    state = services.refresh_state(store, run_info)
    has_live_supervisor = services.live_supervisor_lease(store, run_info.run) is not None
    print_result(
        as_json,
        run_data(run_info, state, has_live_supervisor),
        lambda out: out.print(render_run(state, has_live_supervisor, out.width, max_rows=10_000)),
    )
    if not as_json:
        _print_next_commands_for(run_info, state, has_live_supervisor)


def run_data(run_info: RunInfo, state: RunState, has_live_supervisor: bool) -> dict[str, Any]:
    """Return a run and its jobs as data for --json."""
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
            (f"packtrain logs -f {run_info.run}", "follow the output of the steps"),
        )
    elif not state.is_finished:
        print_next_commands((f"packtrain resume {run_info.run}", "no supervisor is running; resume it"))
    elif state.count_jobs(JobStatus.FAILED):
        print_next_commands(
            (f"packtrain why {run_info.run}", "explain what happened"),
            (f"packtrain resume {run_info.run}", "try again"),
        )
    else:
        print_next_commands((f"packtrain outputs {run_info.run}", "list the outputs"))


def _print_runs(store: SqliteStore, show_all: bool, as_json: bool) -> None:
    runs = store.list_runs()
    rows = [(row, services.refresh_state(store, row)) for row in (runs if show_all else runs[-_MAX_RECENT_RUNS:])]
    has_live_supervisor = {row.run: services.live_supervisor_lease(store, row.run) is not None for row, _ in rows}
    data = [run_data(row, state, has_live_supervisor[row.run]) for row, state in rows]
    print_result(as_json, data, lambda out: _print_run_table(out, rows, has_live_supervisor))


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
    print_next_commands((f"packtrain ps {rows[-1][0].run}", "list its jobs"), ("packtrain ps -w", "watch the newest"))


def _watch_run(store: SqliteStore, run_info: RunInfo, as_json: bool) -> None:
    """Show the run until it ends or has no live supervisor."""
    feed = EventFeed(store, run_info.run)
    if as_json or not console().is_terminal:
        _print_events_until_done(store, feed, as_json)
        return
    with Live(console=console(), refresh_per_second=10) as live:
        while True:
            feed.poll()
            has_live_supervisor = services.live_supervisor_lease(store, run_info.run) is not None
            live.update(
                render_run(feed.state, has_live_supervisor, console().width, max_rows=max(5, console().height - 4))
            )
            if feed.state.is_finished or not has_live_supervisor:
                return
            time.sleep(0.2)


def _print_events_until_done(store: SqliteStore, feed: EventFeed, as_json: bool) -> None:
    formatter: EventLineFormatter | None = None
    while True:
        has_live_supervisor = services.live_supervisor_lease(store, feed.state.run) is not None
        for event in feed.poll():
            formatter = formatter or EventLineFormatter(len(feed.state.jobs))
            text = event.to_json() if as_json else formatter.format_event(event)
            if text:
                click.echo(text)
        if feed.state.is_finished or not has_live_supervisor:
            return
        time.sleep(0.2)
