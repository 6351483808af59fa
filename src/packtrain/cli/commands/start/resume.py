"""packtrain resume"""

from __future__ import annotations

import click

from packtrain import services
from packtrain.cli.commands.start.run import supervise_and_report
from packtrain.cli.ui.output import dry_run_option, json_option, print_next_commands, print_result
from packtrain.errors import UnavailableError
from packtrain.state import JobStatus


@click.command(name="resume")
@click.argument("run", default="")
@click.option("--detach", is_flag=True, help="Go on without this terminal.")
@dry_run_option
@json_option
def command(run: str, detach: bool, dry_run: bool, as_json: bool) -> None:
    """Go on with a run: living attempts are found again, jobs that did not succeed get a fresh budget."""
    store = services.open_store()
    row = services.find_run(store, run)
    lease = services.live_supervisor_lease(store, row.run)
    if lease:
        raise UnavailableError(
            f"the run {row.run} already has a supervisor (process {lease.pid} on {lease.host}); "
            f"watch it with `packtrain ps -w {row.run}`"
        )
    state = services.refresh_state(store, row)
    open_jobs = [job.id for job in state.jobs.values() if job.status is not JobStatus.SUCCEEDED]
    if dry_run or not open_jobs:
        told = f"would go on with {len(open_jobs)} jobs" if open_jobs else "has nothing left to do: every job succeeded"
        print_result(as_json, {"run": row.run, "jobs": open_jobs}, lambda out: out.print(f"{row.run} {told}"))
        return
    services.reload_secrets(row)
    if detach:
        pid = services.start_detached_supervisor(row, store, reopen=True)
        print_result(
            as_json, {"run": row.run, "pid": pid, "jobs": open_jobs}, lambda out: out.print(f"resumed {row.run}")
        )
        if not as_json:
            print_next_commands((f"packtrain ps -w {row.run}", "watch it"))
        return
    supervise_and_report(row, reopen=True, as_json=as_json)
