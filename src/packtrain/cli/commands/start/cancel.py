"""packtrain cancel"""

from __future__ import annotations

import time

import click

from packtrain import services
from packtrain.cli.ui.output import count, dry_run_option, error_console, json_option, say_next, show
from packtrain.store import RunRow, SqliteStore

_PATIENCE_S = 120.0


@click.command(name="cancel")
@click.argument("target", metavar="[RUN[.JOB]]", default="")
@click.option("--reason", default="", help="Kept with the verdict.")
@click.option("--no-wait", is_flag=True, help="Only write the wish down.")
@dry_run_option
@json_option
def command(target: str, reason: str, no_wait: bool, dry_run: bool, as_json: bool) -> None:
    """End a run or a job: attempts get TERM and their grace period, outputs so far are kept."""
    store = services.open_store()
    row, job = services.find_job(store, target)
    state = services.refresh(store, row)
    jobs = [name for name in ([job] if job else state.jobs) if not state.jobs[name].verdict]
    if not dry_run and jobs:
        services.request_cancel(store, row.run, jobs, reason)
        attended = services.supervisor_lease(store, row.run) is not None
        _carry_out(row, store, jobs, attended, no_wait)
    verb = "would cancel" if dry_run else "cancelled" if jobs else "has nothing to cancel:"
    show(as_json, {"run": row.run, "jobs": jobs}, lambda out: out.print(f"{row.run}: {verb} {count(len(jobs), 'job')}"))
    if jobs and not as_json and not dry_run:
        say_next((f"packtrain resume {row.run}", "start it again"))


def _carry_out(row: RunRow, store: SqliteStore, jobs: list[str], attended: bool, no_wait: bool) -> None:
    """The supervisor does it; where there is none, this process is one for the moment."""
    if not attended:
        state = services.supervisor_of(row, store).run(only_requests=True)
        services.forget_secrets(row, state)
        if trouble := services.tell_end(row, state):
            error_console().print(trouble, style="yellow", markup=False)
    elif not no_wait:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline and not _done(store, row.run, jobs):
            time.sleep(0.2)


def _done(store: SqliteStore, run: str, jobs: list[str]) -> bool:
    state = services.load_state(store, run)
    return all(state.jobs[job].verdict for job in jobs)
