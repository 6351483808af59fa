"""packtrain cancel"""

from __future__ import annotations

import time

import click

from packtrain import services
from packtrain.cli.ui.output import (
    dry_run_option,
    json_option,
    print_next_commands,
    print_result,
    print_warning,
)
from packtrain.formatting import pluralize
from packtrain.store import RunInfo, SqliteStore

_CANCEL_TIMEOUT_S = 120.0


@click.command(name="cancel")
@click.argument("target", metavar="[RUN[.JOB]]", default="")
@click.option("--reason", default="", help="Reason stored with the job result.")
@click.option("--no-wait", is_flag=True, help="Request cancellation and return without waiting.")
@dry_run_option
@json_option
def command(target: str, reason: str, no_wait: bool, dry_run: bool, as_json: bool) -> None:
    """Cancel a run (default: the newest) or a job. Attempts get SIGTERM and their grace period; outputs are kept."""
    store = services.open_store()
    run_info, job = services.find_job(store, target)
    state = services.refresh_state(store, run_info)
    jobs = [job_id for job_id in ([job] if job else state.jobs) if not state.jobs[job_id].result]
    if not dry_run and jobs:
        services.request_cancel(store, run_info.run, jobs, reason)
        has_live_supervisor = services.live_supervisor_lease(store, run_info.run) is not None
        _apply_cancellation(run_info, store, jobs, has_live_supervisor, no_wait)
    action = "would cancel" if dry_run else "cancelled"
    text = f"{action} {pluralize(len(jobs), 'job')}" if dry_run or jobs else "nothing to cancel"
    print_result(as_json, {"run": run_info.run, "jobs": jobs}, lambda out: out.print(f"{run_info.run}: {text}"))
    if jobs and not as_json and not dry_run:
        print_next_commands((f"packtrain resume {run_info.run}", "resume it"))


def _apply_cancellation(
    run_info: RunInfo, store: SqliteStore, jobs: list[str], has_live_supervisor: bool, no_wait: bool
) -> None:
    """Wait for the supervisor to cancel the jobs; without a live supervisor, this process acts as one."""
    if not has_live_supervisor:
        state = services.make_supervisor(run_info, store).run(only_requests=True)
        services.delete_secrets(run_info, state)
        if problem := services.notify_run_ended(run_info, state):
            print_warning(problem)
    elif not no_wait:
        deadline = time.monotonic() + _CANCEL_TIMEOUT_S
        while time.monotonic() < deadline and not _have_jobs_ended(store, run_info.run, jobs):
            time.sleep(0.2)


def _have_jobs_ended(store: SqliteStore, run: str, jobs: list[str]) -> bool:
    state = services.load_state(store, run)
    return all(state.jobs[job].result for job in jobs)
