"""packtrain run"""

from __future__ import annotations

from pathlib import Path

import click

from packtrain import services
from packtrain.cli.ui.options import expect_option, notify_option
from packtrain.cli.ui.output import (
    console,
    dry_run_option,
    error_console,
    json_option,
    print_diagnostics,
    print_next_commands,
    print_result,
    resource_override_options,
)
from packtrain.errors import EXIT_USAGE
from packtrain.store import RunInfo
from packtrain.submission import prepare


@click.command(name="run")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--on", "engine", default="local", show_default=True, help="Where: local, htcondor.")
@click.option("--detach", is_flag=True, help="Go on without this terminal.")
@resource_override_options
@expect_option
@notify_option
@click.option("--offline", is_flag=True, help="Do not ask the inputs for their sizes first.")
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
    """Run a workflow file, or a submit file of HTCondor as it is.

    The exit code is 0 if every job succeeded, else that of the first failure (docs/reference/failures.md).
    Ctrl-C stops cleanly; `packtrain resume` goes on.
    """
    from packtrain.cli.commands.start.plan import print_plan, run_submission_preflight
    from packtrain.cli.ui.stream_indexes import ensure_indexes

    prepared = prepare.prepare_submission(file, engine, no_container=no_container, no_gpu=no_gpu, expect=expect)
    if not as_json or prepared.has_errors:
        print_diagnostics(prepared.diagnostics)
    if prepared.has_errors:
        raise click.exceptions.Exit(EXIT_USAGE)
    known = prepared.diagnostics
    prepared, explained = run_submission_preflight(prepared, offline=offline)
    prepared = prepare.add_pool_diagnostics(prepared)
    print_diagnostics([problem for problem in prepared.diagnostics if problem not in known])
    if prepared.has_errors:
        raise click.exceptions.Exit(EXIT_USAGE)
    if detach:
        prepare.check_detachable(prepared)
    if dry_run or not as_json:
        print_result(as_json, explained.to_data(), lambda out: print_plan(out, explained))
    if not dry_run:
        _start_run(ensure_indexes(prepared, quiet=as_json), detach, notify_target, as_json)


def _start_run(submission: prepare.Submission, detach: bool, notify_target: str | None, as_json: bool) -> None:
    store = services.open_store()
    row = prepare.create_run(submission, store, notify_target)
    if detach:
        pid = services.start_detached_supervisor(row, store, reopen=False)
        print_result(
            as_json,
            {"run": row.run, "folder": str(row.folder), "pid": pid},
            lambda out: out.print(f"started {row.run}"),
        )
        if not as_json:
            print_next_commands((f"packtrain ps -w {row.run}", "watch it"), (f"packtrain cancel {row.run}", "end it"))
        return
    store.close()
    supervise_and_report(row, reopen=False, as_json=as_json)


def supervise_and_report(run_info: RunInfo, *, reopen: bool, as_json: bool) -> None:
    """Attend the run to its end, sum it up, leave with its exit code."""
    from packtrain.cli.ui.foreground import supervise_in_foreground
    from packtrain.cli.ui.run_summary import print_run_summary, run_exit_code, summary_data, write_charts_and_report

    if not as_json:
        console().print(f"[dim]run {run_info.run} in {run_info.folder}[/]")
    state = supervise_in_foreground(run_info, reopen=reopen, as_json=as_json)
    made = write_charts_and_report(run_info, state)
    print_result(
        as_json, summary_data(run_info, state, made), lambda out: print_run_summary(out, run_info, state, made)
    )
    trouble = services.notify_run_ended(run_info, state)
    if trouble:
        error_console().print(trouble, style="yellow", markup=False)
    raise click.exceptions.Exit(run_exit_code(state))
