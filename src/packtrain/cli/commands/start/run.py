"""packtrain run"""

from __future__ import annotations

from pathlib import Path

import click

from packtrain import services
from packtrain.cli.ui.foreground import supervise_and_report
from packtrain.cli.ui.options import DetachCommand, detach_options, expect_option, notify_option, pixi_option
from packtrain.cli.ui.output import (
    dry_run_option,
    json_option,
    print_next_commands,
    print_result,
    resource_override_options,
)
from packtrain.cli.ui.submission_progress import SubmissionProgress, exit_on_workflow_error
from packtrain.runs import control
from packtrain.submission import Goal, create_run, prepare


@click.command(name="run", cls=DetachCommand)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--on", "engine", default="local", show_default=True, help="Engine to run on: local, htcondor or slurm.")
@detach_options
@resource_override_options
@expect_option
@pixi_option
@notify_option
@click.option("--offline", is_flag=True, help="Do not query the sizes of the inputs first.")
@dry_run_option
@json_option
def command(
    file: Path,
    engine: str,
    detach: bool,
    detach_job: bool,
    no_container: bool,
    no_gpu: bool,
    expect: tuple[str, ...],
    pixi: str,
    notify_target: str | None,
    offline: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run a workflow file, an HTCondor submit file or a Slurm batch script.

    The exit code is 0 if every job succeeded, else that of the first failure (docs/reference/failures.md). Ctrl-C
    stops the run cleanly; `packtrain resume` continues it.
    """
    if detach_job and engine != "slurm":
        raise click.UsageError("--detach=job submits a Slurm job; use it with --on slurm, or --detach")
    store = services.open_store()
    with exit_on_workflow_error():
        submission = prepare(
            file,
            engine,
            goal=Goal.DRY_RUN if dry_run else Goal.RUN,
            progress=SubmissionProgress(as_json, show_plan=dry_run or not as_json),
            no_container=no_container,
            no_gpu=no_gpu,
            expect=expect,
            pixi=pixi,
            offline=offline,
            detach=detach or detach_job,
            site_history=services.load_site_history(store, engine),
        )
    if dry_run:
        return
    run_info = create_run(submission, store, notify_target)
    run = run_info.run
    if detach_job:
        job = control.submit_slurm_supervisor(run_info, store, reopen=False)
        job_data = {"run": run, "folder": str(run_info.folder), "supervisor_job": job}
        print_result(as_json, job_data, lambda out: out.print(f"started {run}; its supervisor is the Slurm job {job}"))
        if not as_json:
            print_next_commands((f"packtrain ps -w {run}", "watch it"), (f"squeue -j {job}", "the supervisor's job"))
        return
    if detach:
        pid = control.start_detached_supervisor(run_info, store, reopen=False)
        data = {"run": run, "folder": str(run_info.folder), "pid": pid}
        print_result(as_json, data, lambda out: out.print(f"started {run}"))
        if not as_json:
            print_next_commands((f"packtrain ps -w {run}", "watch it"), (f"packtrain cancel {run}", "cancel it"))
        return
    store.close()
    supervise_and_report(run_info, reopen=False, as_json=as_json)
