"""Show the progress of a submission: diagnostics, the plan, and the building of indexes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import click

from packtrain import formatting
from packtrain.cli.ui.index_progress import RESUME_HINT, IndexProgressBar
from packtrain.cli.ui.output import console, print_diagnostics, print_result
from packtrain.cli.ui.plan_table import print_plan
from packtrain.cli.ui.transfer_progress import cancel_on_signal
from packtrain.errors import EXIT_USAGE
from packtrain.indexing import IndexResult
from packtrain.indexing.builder import BUILT, CACHED, PUBLISHED
from packtrain.planner.plan_summary import PlanSummary
from packtrain.spec.diagnostics import Diagnostic, WorkflowError
from packtrain.submission import Progress
from packtrain.submission.progress import IndexCallbacks

_ORIGIN_TEXTS = {BUILT: "indexed in {}", CACHED: "indexed before", PUBLISHED: "index found next to the data"}


@contextmanager
def exit_on_workflow_error() -> Iterator[None]:
    """Exit with the code of a usage error if the workflow has errors; `SubmissionProgress` has printed them."""
    try:
        yield
    except WorkflowError:
        raise click.exceptions.Exit(EXIT_USAGE) from None


class SubmissionProgress(Progress):
    """Prints the progress of `prepare`.

    Args:
        as_json: Print only diagnostics, and the plan as JSON.
        show_plan: Print the plan.
    """

    def __init__(self, as_json: bool, show_plan: bool) -> None:
        self._as_json, self._show_plan = as_json, show_plan

    def on_diagnostics(self, diagnostics: Sequence[Diagnostic]) -> None:
        print_diagnostics(diagnostics)

    def querying_inputs(self) -> AbstractContextManager[Any]:
        return console().status("querying the sizes of the inputs …") if console().is_terminal else nullcontext()

    def storing_packages(self, count: int) -> AbstractContextManager[Any]:
        if not console().is_terminal:
            return nullcontext()
        return console().status(f"uploading {formatting.pluralize(count, 'package')} to the store …")

    def on_summary(self, summary: PlanSummary) -> None:
        if self._show_plan:
            print_result(self._as_json, summary.to_data(), lambda out: print_plan(out, summary))

    @contextmanager
    def indexing(self, name: str) -> Iterator[IndexCallbacks]:
        """Show a progress bar; Ctrl-C stops and saves what was found so far."""
        with cancel_on_signal(RESUME_HINT) as cancel_token, IndexProgressBar(name, self._as_json) as bar:
            yield IndexCallbacks(bar.on_progress, cancel_token.check_cancelled)

    def on_index(self, name: str, result: IndexResult, duration_s: float) -> None:
        if self._as_json:
            return
        index = result.index
        classes = f" of {len(index.class_names):,} classes" if len(index.class_names) > 1 else ""
        origin = _ORIGIN_TEXTS[result.origin].format(formatting.format_duration(duration_s))
        size = formatting.format_size(index.path.stat().st_size)
        console().print(
            f"{name}: {len(index):,} samples{classes} to stream, {origin}; the index has {size}", style="dim"
        )
