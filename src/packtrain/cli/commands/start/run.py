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
    fitting_options,
    json_option,
    say_next,
    show,
    show_problems,
)
from packtrain.errors import EXIT_USAGE
from packtrain.store import RunRow
from packtrain.submission import prepare


@click.command(name="run")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--on", "engine", default="local", show_default=True, help="Where: local, htcondor.")
@click.option("--detach", is_flag=True, help="Go on without this terminal.")
@fitting_options
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
    tell: str | None,
    offline: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run a workflow file, or a submit file of HTCondor as it is.

    The exit code is 0 if every job succeeded, else that of the first failure (docs/reference/failures.md).
    Ctrl-C stops cleanly; `packtrain resume` goes on.
    """
    from packtrain.cli.commands.start.plan import explain, show_plan
    from packtrain.cli.ui.stream_indexes import with_indexes

    prepared = prepare.prepare(file, engine, no_container=no_container, no_gpu=no_gpu, expect=expect)
    if not as_json or prepared.failed:
        show_problems(prepared.problems)
    if prepared.failed:
        raise click.exceptions.Exit(EXIT_USAGE)
    known = prepared.problems
    prepared, explained = explain(prepared, offline=offline)
    prepared = prepare.with_pool_problems(prepared)
    show_problems([problem for problem in prepared.problems if problem not in known])
    if prepared.failed:
        raise click.exceptions.Exit(EXIT_USAGE)
    if detach:
        prepare.refuse_detached(prepared)
    if dry_run or not as_json:
        show(as_json, explained.to_data(), lambda out: show_plan(out, explained))
    if not dry_run:
        _start(with_indexes(prepared, quiet=as_json), detach, tell, as_json)


def _start(prepared: prepare.Prepared, detach: bool, tell: str | None, as_json: bool) -> None:
    store = services.open_store()
    row = prepare.create_run(prepared, store, tell)
    if detach:
        pid = services.detach(row, store, reopen=False)
        show(
            as_json,
            {"run": row.run, "folder": str(row.folder), "pid": pid},
            lambda out: out.print(f"started {row.run}"),
        )
        if not as_json:
            say_next((f"packtrain ps -w {row.run}", "watch it"), (f"packtrain cancel {row.run}", "end it"))
        return
    store.close()
    finish(row, reopen=False, as_json=as_json)


def finish(row: RunRow, *, reopen: bool, as_json: bool) -> None:
    """Attend the run to its end, sum it up, leave with its exit code."""
    from packtrain.cli.ui.foreground import attend
    from packtrain.cli.ui.run_summary import exit_code_of, made_of, show_summary, summary_data

    if not as_json:
        console().print(f"[dim]run {row.run} in {row.folder}[/]")
    state = attend(row, reopen=reopen, as_json=as_json)
    made = made_of(row, state)
    show(as_json, summary_data(row, state, made), lambda out: show_summary(out, row, state, made))
    trouble = services.tell_end(row, state)
    if trouble:
        error_console().print(trouble, style="yellow", markup=False)
    raise click.exceptions.Exit(exit_code_of(state))
