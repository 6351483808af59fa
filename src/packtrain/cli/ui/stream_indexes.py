"""Before a run starts: the indexes of its inputs with `mode: stream`, made or found."""

from __future__ import annotations

import time

from packtrain import formatting
from packtrain.cli.ui.index_progress import GOES_ON, Bar, home
from packtrain.cli.ui.output import console
from packtrain.cli.ui.transfer_progress import Stop, stopping
from packtrain.indexing import Obtained, obtain
from packtrain.plan import Input
from packtrain.planner import stream_planner
from packtrain.planner.secret_sources import revealer
from packtrain.submission import prepare
from packtrain.transfer.api import Reveal

_PATIENCE_S = 60.0
_HOW = {"made": "listed in {}", "kept": "listed before", "shared": "as listed beside them"}


def with_indexes(prepared: prepare.Prepared, *, quiet: bool) -> prepare.Prepared:
    """Raises FailedError with a remedy where samples cannot be read out of an input."""
    wanted = stream_planner.streamed(prepared.plan)
    if not wanted:
        return prepared
    reveal = revealer(prepared.resolved.values)
    with stopping(GOES_ON) as stop:
        found = {source: _obtained(source, reveal, stop, quiet).index for source in wanted}
    return prepare.with_indexes(prepared, found)


def _obtained(source: Input, reveal: Reveal, stop: Stop, quiet: bool) -> Obtained:
    name, began = source.name or "input", time.monotonic()
    with Bar(name, quiet) as bar:
        wish = stream_planner.wish_of(source, reveal, _PATIENCE_S)
        got = obtain(wish, home(), stop=stop.check, progress=bar.progress)
    if not quiet:
        _tell(name, got, time.monotonic() - began)
    return got


def _tell(name: str, got: Obtained, seconds: float) -> None:
    index = got.index
    classes = f" of {len(index.class_names):,} classes" if len(index.class_names) > 1 else ""
    how = _HOW[got.how].format(formatting.duration(seconds))
    size = formatting.size(index.path.stat().st_size)
    console().print(
        f"[dim]{name}: {len(index):,} samples{classes} to stream, {how}; the index has {size}[/]", highlight=False
    )
