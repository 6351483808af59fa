"""What `prepare` reports while it works."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from packtrain.indexing import IndexResult, OnIndexProgress
from packtrain.planner.plan_summary import PlanSummary
from packtrain.spec.diagnostics import Diagnostic


@dataclass(frozen=True)
class IndexCallbacks:
    """Called while an index is built, possibly in other threads."""

    on_progress: OnIndexProgress = lambda done_bytes, total_bytes, n_files: None
    check_cancelled: Callable[[], None] = lambda: None  # raises an exception to stop


class Progress:
    """Receives the progress of `prepare`. This class ignores it; the command line displays it."""

    def on_diagnostics(self, diagnostics: Sequence[Diagnostic]) -> None:
        """Receive new errors and warnings. After an error, `prepare` raises WorkflowError with all of them."""

    def querying_inputs(self) -> AbstractContextManager[None]:
        """Return a context that is active while servers are asked for the sizes of the inputs."""
        return nullcontext()

    def on_summary(self, summary: PlanSummary) -> None:
        """Receive the summary of the plan, before indexes are built."""

    def storing_packages(self, count: int) -> AbstractContextManager[None]:
        """Return a context that is active while packages are uploaded to the store of a Pixi environment."""
        return nullcontext()

    def indexing(self, name: str) -> AbstractContextManager[IndexCallbacks]:
        """Return a context that is active while the index of the input `name` is found or built."""
        return nullcontext(IndexCallbacks())

    def on_index(self, name: str, result: IndexResult, duration_s: float) -> None:
        """Receive the index of the input `name`."""
