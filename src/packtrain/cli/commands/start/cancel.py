"""packtrain cancel"""

from __future__ import annotations

import time

import click

from packtrain import services
from packtrain.cli.ui.output import (
    dry_run_option,
    error_console,
    json_option,
    pluralize,
    print_next_commands,
    print_result,
)
from packtrain.store import RunInfo, SqliteStore

_CANCEL_TIMEOUT_S = 120.0


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
    state = services.refresh_state(store, row)
    jobs = [name for name in ([job] if job else state.jobs) if not state.jobs[name].result]
    if not dry_run and jobs:
        services.request_cancel(store, row.run, jobs, reason)
        attended = services.live_supervisor_lease(store, row.run) is not None
        _apply_cancellation(row, store, jobs, attended, no_wait)
    verb = "would cancel" if dry_run else "cancelled" if jobs else "has nothing to cancel:"
    print_result(
        as_json,
        {"run": row.run, "jobs": jobs},
        lambda out: out.print(f"{row.run}: {verb} {pluralize(len(jobs), 'job')}"),
    )
    if jobs and not as_json and not dry_run:
        print_next_commands((f"packtrain resume {row.run}", "start it again"))


def _apply_cancellation(
    run_info: RunInfo, store: SqliteStore, jobs: list[str], has_live_supervisor: bool, no_wait: bool
) -> None:
    """The supervisor does it; where there is none, this process is one for the moment."""
    if not has_live_supervisor:
        state = services.make_supervisor(run_info, store).run(only_requests=True)
        services.delete_secrets(run_info, state)
        if trouble := services.notify_run_ended(run_info, state):
            error_console().print(trouble, style="yellow", markup=False)
    elif not no_wait:
        deadline = time.monotonic() + _CANCEL_TIMEOUT_S
        while time.monotonic() < deadline and not _have_jobs_ended(store, run_info.run, jobs):
            time.sleep(0.2)


def _have_jobs_ended(store: SqliteStore, run: str, jobs: list[str]) -> bool:
    state = services.load_state(store, run)
    return all(state.jobs[job].result for job in jobs)
