"""Open or build the indexes of the streamed inputs of a run before it is created."""

from __future__ import annotations

import time

from packtrain import formatting
from packtrain.cli.ui.index_progress import RESUME_HINT, IndexProgressBar, index_cache_dir
from packtrain.cli.ui.output import console
from packtrain.cli.ui.transfer_progress import CancelToken, cancel_on_signal
from packtrain.indexing import IndexResult, get_or_build_index
from packtrain.indexing.builder import BUILT, CACHED, PUBLISHED
from packtrain.plan import Input
from packtrain.planner import stream_planner
from packtrain.planner.secret_sources import secret_resolver
from packtrain.submission import prepare
from packtrain.transfer.api import SecretResolver

_RETRY_TIMEOUT_S = 60.0
_ORIGIN_TEXTS = {BUILT: "indexed in {}", CACHED: "indexed before", PUBLISHED: "index found next to the data"}


def ensure_indexes(submission: prepare.Submission, *, quiet: bool) -> prepare.Submission:
    """Return the submission with the indexes of its streamed inputs.

    Raises FailedError with a hint if an input is not readable or has no samples.
    """
    inputs = stream_planner.streamed_inputs(submission.plan)
    if not inputs:
        return submission
    resolve_secret = secret_resolver(submission.resolved_secrets.values)
    with cancel_on_signal(RESUME_HINT) as cancel_token:
        indexes = {input_: _get_or_build_index(input_, resolve_secret, cancel_token, quiet).index for input_ in inputs}
    return prepare.add_indexes(submission, indexes)


def _get_or_build_index(
    input_: Input, resolve_secret: SecretResolver, cancel_token: CancelToken, quiet: bool
) -> IndexResult:
    name, started_at = input_.name or "input", time.monotonic()
    with IndexProgressBar(name, quiet) as bar:
        request = stream_planner.make_index_request(input_, resolve_secret, _RETRY_TIMEOUT_S)
        result = get_or_build_index(
            request, index_cache_dir(), check_cancelled=cancel_token.check_cancelled, on_progress=bar.on_progress
        )
    if not quiet:
        _print_index(name, result, time.monotonic() - started_at)
    return result


def _print_index(name: str, result: IndexResult, duration_s: float) -> None:
    index = result.index
    classes = f" of {len(index.class_names):,} classes" if len(index.class_names) > 1 else ""
    origin = _ORIGIN_TEXTS[result.origin].format(formatting.format_duration(duration_s))
    size = formatting.format_size(index.path.stat().st_size)
    console().print(
        f"[dim]{name}: {len(index):,} samples{classes} to stream, {origin}; the index has {size}[/]", highlight=False
    )
