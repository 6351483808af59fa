"""What staging and streaming would each cost, for inputs that could come by either way. Only what is known is told."""

from __future__ import annotations

from dataclasses import dataclass

from packtrain.plan import Input
from packtrain.planner.stream_planner import STREAM, is_packed, may_be_archive
from packtrain.stream.read_groups import SPAN

STAGE = "stage"


@dataclass(frozen=True)
class ShownWay:
    mode: str  # stage, stream
    chosen: bool
    first_bytes: int | None  # come before the first batch can be trained with
    epoch_bytes: int | None  # come in each epoch
    disk_bytes: int | None  # needed; of archives a guess at what is in them, too
    keeps: bool = False  # what was read stays on the disk as far as `limits.disk` leaves room


def ways_of(source: Input, size: int | None, staged_disk: int | None, promised: int | None) -> tuple[ShownWay, ...]:
    """None for what can be staged only. `promised` is the job's `limits.disk`."""
    if source.mode != STREAM and not _could_stream(source):
        return ()
    streams = source.mode == STREAM
    first = SPAN if size is None else min(SPAN, size)
    return (
        ShownWay(STAGE, not streams, size, 0, staged_disk),
        ShownWay(STREAM, streams, first, size, 0, keeps=promised is not None),
    )


def _could_stream(source: Input) -> bool:
    """By what is known without a look inside: an archive that is to be unpacked, or a folder."""
    refs = [source.prefix] if source.prefix else [item.sources[0] for item in source.items]
    if any(is_packed(ref.url) for ref in refs):
        return False
    return bool(source.prefix) or (source.unpack == "auto" and all(may_be_archive(ref.url) for ref in refs))
