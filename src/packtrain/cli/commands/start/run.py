"""packtrain run"""

from __future__ import annotations

from pathlib import Path

import click

from packtrain import services
from packtrain.cli.ui.options import expect_option, notify_option
from packtrain.cli.ui.output import (
    dry_run_option,
    json_option,
    print_diagnostics,
    print_next_commands,
    print_result,
    resource_override_options,
)
from packtrain.errors import EXIT_USAGE
from packtrain.submission import prepare


@click.command(name="run")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--on", "engine", default="local", show_default=True, help="Engine to run on: local or htcondor.")
@click.option("--detach", is_flag=True, help="Supervise the run in the background.")
@resource_override_options
@expect_option
@notify_option
@click.option("--offline", is_flag=True, help="Do not query the sizes of the inputs first.")
@dry_run_option
@json_option
def command(
    file: Path,
    engine: str,
    detach: bool,
    no_container: bool,
    no_gpu: bool,
    expect: tuple[str, ...],
    notify_target: str | None,
    offline: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run a workflow file or an HTCondor submit file.

    The exit code is 0 if every job succeeded, else that of the first failure (docs/reference/failures.md). Ctrl-C
    stops the run cleanly; `packtrain resume` continues it.
    """
    from packtrain.cli.ui.plan_table import preflight_or_exit, print_plan
    from packtrain.cli.ui.stream_indexes import ensure_indexes

    submission = prepare.prepare_submission(file, engine, no_container=no_container, no_gpu=no_gpu, expect=expect)
    if not as_json or submission.has_errors:
        print_diagnostics(submission.diagnostics)
    if submission.has_errors:
        raise click.exceptions.Exit(EXIT_USAGE)
    printed = submission.diagnostics
    submission, summary = preflight_or_exit(submission, offline=offline)
    submission = prepare.add_pool_diagnostics(submission)
    print_diagnostics([diagnostic for diagnostic in submission.diagnostics if diagnostic not in printed])
    if submission.has_errors:
        raise click.exceptions.Exit(EXIT_USAGE)
    if detach:
        prepare.check_detachable(submission)
    if dry_run or not as_json:
        print_result(as_json, summary.to_data(), lambda out: print_plan(out, summary))
    if not dry_run:
        _start_run(ensure_indexes(submission, quiet=as_json), detach, notify_target, as_json)


def _start_run(submission: prepare.Submission, detach: bool, notify_target: str | None, as_json: bool) -> None:
    from packtrain.cli.ui.foreground import supervise_and_report

    store = services.open_store()
    run_info = prepare.create_run(submission, store, notify_target)
    run = run_info.run
    if detach:
        pid = services.start_detached_supervisor(run_info, store, reopen=False)
        data = {"run": run, "folder": str(run_info.folder), "pid": pid}
        print_result(as_json, data, lambda out: out.print(f"started {run}"))
        if not as_json:
            print_next_commands((f"packtrain ps -w {run}", "watch it"), (f"packtrain cancel {run}", "cancel it"))
        return
    store.close()
    supervise_and_report(run_info, reopen=False, as_json=as_json)
