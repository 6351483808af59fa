"""Before a run starts: the indexes of its inputs with `mode: stream`, made or found."""

from __future__ import annotations

import time

from packtrain import formatting
from packtrain.cli.ui.index_progress import RESUME_HINT, IndexProgressBar, index_cache_dir
from packtrain.cli.ui.output import console
from packtrain.cli.ui.transfer_progress import CancelToken, cancel_on_signal
from packtrain.indexing import IndexResult, get_or_build_index
from packtrain.plan import Input
from packtrain.planner import stream_planner
from packtrain.planner.secret_sources import secret_resolver
from packtrain.submission import prepare
from packtrain.transfer.api import SecretResolver

_RETRY_TIMEOUT_S = 60.0
_ORIGIN_TEXTS = {"made": "listed in {}", "kept": "listed before", "shared": "as listed beside them"}


def ensure_indexes(submission: prepare.Submission, *, quiet: bool) -> prepare.Submission:
    """Raises FailedError with a remedy where samples cannot be read out of an input."""
    wanted = stream_planner.streamed_inputs(submission.plan)
    if not wanted:
        return submission
    reveal = secret_resolver(submission.resolved_secrets.values)
    with cancel_on_signal(RESUME_HINT) as stop:
        found = {source: _get_or_build_index(source, reveal, stop, quiet).index for source in wanted}
    return prepare.add_indexes(submission, found)


def _get_or_build_index(
    input_: Input, resolve_secret: SecretResolver, cancel_token: CancelToken, quiet: bool
) -> IndexResult:
    name, began = input_.name or "input", time.monotonic()
    with IndexProgressBar(name, quiet) as bar:
        wish = stream_planner.make_index_request(input_, resolve_secret, _RETRY_TIMEOUT_S)
        got = get_or_build_index(
            wish, index_cache_dir(), check_cancelled=cancel_token.check_cancelled, on_progress=bar.on_progress
        )
    if not quiet:
        _print_index(name, got, time.monotonic() - began)
    return got


def _print_index(name: str, result: IndexResult, duration_s: float) -> None:
    index = result.index
    classes = f" of {len(index.class_names):,} classes" if len(index.class_names) > 1 else ""
    how = _ORIGIN_TEXTS[result.origin].format(formatting.format_duration(duration_s))
    size = formatting.format_size(index.path.stat().st_size)
    console().print(
        f"[dim]{name}: {len(index):,} samples{classes} to stream, {how}; the index has {size}[/]", highlight=False
    )
