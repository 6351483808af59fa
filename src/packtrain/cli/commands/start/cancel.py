"""packtrain cancel"""

from __future__ import annotations

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
from packtrain.runs import control


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
    jobs = control.find_jobs_to_cancel(store, run_info, job)
    if jobs and not dry_run:
        problem = control.cancel_jobs(store, run_info, jobs, reason, wait=not no_wait)
        if problem:
            print_warning(problem)
    action = "would cancel" if dry_run else "cancelled"
    text = f"{action} {pluralize(len(jobs), 'job')}" if dry_run or jobs else "nothing to cancel"
    print_result(as_json, {"run": run_info.run, "jobs": jobs}, lambda out: out.print(f"{run_info.run}: {text}"))
    if jobs and not as_json and not dry_run:
        print_next_commands((f"packtrain resume {run_info.run}", "resume it"))
