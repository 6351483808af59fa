"""What staging and streaming would each cost, for inputs that could come by either way. Only what is known is told."""

from __future__ import annotations

from dataclasses import dataclass

from packtrain.plan import Input
from packtrain.planner.stream_planner import STREAM, is_compressed, is_indexable_archive
from packtrain.stream.read_groups import DEFAULT_READ_BYTES

STAGE = "stage"


@dataclass(frozen=True)
class ModeCost:
    mode: str  # stage, stream
    is_selected: bool
    startup_bytes: int | None  # come before the first batch can be trained with
    bytes_per_epoch: int | None  # come in each epoch
    disk_bytes: int | None  # needed; of archives a guess at what is in them, too
    caches_reads: bool = False  # what was read stays on the disk as far as `limits.disk` leaves room


def compare_modes(
    input_: Input, size_bytes: int | None, staged_disk_bytes: int | None, disk_limit_bytes: int | None
) -> tuple[ModeCost, ...]:
    """None for what can be staged only. `promised` is the job's `limits.disk`."""
    if input_.mode != STREAM and not _can_stream(input_):
        return ()
    streams = input_.mode == STREAM
    first = DEFAULT_READ_BYTES if size_bytes is None else min(DEFAULT_READ_BYTES, size_bytes)
    return (
        ModeCost(STAGE, not streams, size_bytes, 0, staged_disk_bytes),
        ModeCost(STREAM, streams, first, size_bytes, 0, caches_reads=disk_limit_bytes is not None),
    )


def _can_stream(input_: Input) -> bool:
    """By what is known without a look inside: an archive that is to be unpacked, or a folder."""
    refs = [input_.prefix] if input_.prefix else [item.locations[0] for item in input_.files]
    if any(is_compressed(ref.url) for ref in refs):
        return False
    return bool(input_.prefix) or (input_.unpack == "auto" and all(is_indexable_archive(ref.url) for ref in refs))
