"""packtrain ps"""

from __future__ import annotations

import time
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from packtrain import formatting, services
from packtrain.cli.ui.output import console, json_option, say_next, show
from packtrain.state import JobStatus, RunState
from packtrain.store import RunRow, SqliteStore
from packtrain.views.event_feed import Feed
from packtrain.views.plain import Lines
from packtrain.views.run_table import draw, styled
from packtrain.views.summary import job_data, run_status

_RECENT = 15


@click.command(name="ps")
@click.argument("run", default="")
@click.option("-w", "--watch", is_flag=True, help="Follow until the run ends.")
@click.option("-a", "--all", "every", is_flag=True, help=f"All runs, not only the last {_RECENT}.")
@json_option
def command(run: str, watch: bool, every: bool, as_json: bool) -> None:
    """List runs, or the jobs of a run; -w watches a run (the newest, if none is named)."""
    store = services.open_store()
    if watch:
        _watch(store, services.find_run(store, run), as_json)
    elif run:
        _one(store, services.find_run(store, run), as_json)
    else:
        _many(store, every, as_json)


def _one(store: SqliteStore, row: RunRow, as_json: bool) -> None:
    state = services.refresh(store, row)
    attended = services.supervisor_lease(store, row.run) is not None
    show(as_json, run_data(row, state, attended), lambda out: out.print(draw(state, attended, out.width, rows=10_000)))
    if not as_json:
        _say_what_next(row, state, attended)


def run_data(row: RunRow, state: RunState, attended: bool) -> dict[str, Any]:
    return {
        "run": row.run,
        "name": row.name,
        "engine": row.engine,
        "folder": str(row.folder),
        "created": row.created,
        "status": run_status(state, attended),
        "attended": attended,
        "jobs": [job_data(job) for job in state.jobs.values()],
    }


def _say_what_next(row: RunRow, state: RunState, attended: bool) -> None:
    if attended:
        say_next((f"packtrain ps -w {row.run}", "watch it"), (f"packtrain logs -f {row.run}", "what the steps write"))
    elif not state.finished:
        say_next((f"packtrain resume {row.run}", "nobody supervises it: go on"))
    elif state.count(JobStatus.FAILED):
        say_next((f"packtrain why {row.run}", "what happened"), (f"packtrain resume {row.run}", "try again"))
    else:
        say_next((f"packtrain outputs {row.run}", "what came home"))


def _many(store: SqliteStore, every: bool, as_json: bool) -> None:
    runs = store.runs()
    rows = [(row, services.refresh(store, row)) for row in (runs if every else runs[-_RECENT:])]
    attended = {row.run: services.supervisor_lease(store, row.run) is not None for row, _ in rows}
    data = [run_data(row, state, attended[row.run]) for row, state in rows]
    show(as_json, data, lambda out: _table(out, rows, attended))


def _table(out: Console, rows: list[tuple[RunRow, RunState]], attended: dict[str, bool]) -> None:
    if not rows:
        out.print("no runs yet; start one with `packtrain run FILE`")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("run", "status", "jobs", "engine", "started"):
        table.add_column(title)
    for row, state in rows:
        done = state.count(JobStatus.SUCCEEDED)
        age = formatting.ago(time.time() - row.created)
        status = styled(run_status(state, attended[row.run]))
        table.add_row(row.run, status, f"{done}/{len(state.jobs)}", row.engine, age)
    out.print(table)
    say_next((f"packtrain ps {rows[-1][0].run}", "its jobs"), ("packtrain ps -w", "watch the newest"))


def _watch(store: SqliteStore, row: RunRow, as_json: bool) -> None:
    """Until the run ends or nobody supervises it any more."""
    feed = Feed(store, row.run)
    if as_json or not console().is_terminal:
        _tell(store, feed, as_json)
        return
    with Live(console=console(), refresh_per_second=10) as live:
        while True:
            feed.poll()
            attended = services.supervisor_lease(store, row.run) is not None
            live.update(draw(feed.state, attended, console().width, rows=max(5, console().height - 4)))
            if feed.state.finished or not attended:
                return
            time.sleep(0.2)


def _tell(store: SqliteStore, feed: Feed, as_json: bool) -> None:
    lines: Lines | None = None
    while True:
        attended = services.supervisor_lease(store, feed.state.run) is not None
        for event in feed.poll():
            lines = lines or Lines(len(feed.state.jobs))
            text = event.to_json() if as_json else lines.of(event)
            if text:
                click.echo(text)
        if feed.state.finished or not attended:
            return
        time.sleep(0.2)
