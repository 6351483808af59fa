"""packtrain resume"""

from __future__ import annotations

import click

from packtrain import services
from packtrain.cli.ui.foreground import supervise_and_report
from packtrain.cli.ui.options import DetachCommand, detach_options
from packtrain.cli.ui.output import dry_run_option, json_option, print_next_commands, print_result
from packtrain.formatting import pluralize
from packtrain.runs import control
from packtrain.runs.secrets import reload_secrets


@click.command(name="resume", cls=DetachCommand)
@click.argument("run", default="")
@detach_options
@dry_run_option
@json_option
def command(run: str, detach: bool, detach_job: bool, dry_run: bool, as_json: bool) -> None:
    """Resume a run (default: the newest). Live attempts are found again; jobs that did not succeed get new attempts."""
    store = services.open_store()
    run_info = services.find_run(store, run)
    run = run_info.run
    open_jobs = control.find_jobs_to_resume(store, run_info)
    if dry_run or not open_jobs:
        text = f"would resume {pluralize(len(open_jobs), 'job')}" if open_jobs else "nothing to do, every job succeeded"
        print_result(as_json, {"run": run, "jobs": open_jobs}, lambda out: out.print(f"{run}: {text}"))
        return
    reload_secrets(run_info)
    if detach_job:
        job = control.submit_slurm_supervisor(run_info, store, reopen=True)
        job_data = {"run": run, "supervisor_job": job, "jobs": open_jobs}
        print_result(as_json, job_data, lambda out: out.print(f"resumed {run}; its supervisor is the Slurm job {job}"))
        return
    if detach:
        pid = control.start_detached_supervisor(run_info, store, reopen=True)
        data = {"run": run, "pid": pid, "jobs": open_jobs}
        print_result(as_json, data, lambda out: out.print(f"resumed {run}"))
        if not as_json:
            print_next_commands((f"packtrain ps -w {run}", "watch it"))
        return
    supervise_and_report(run_info, reopen=True, as_json=as_json)
