"""Compare the costs of staging and streaming an input that allows both."""

from __future__ import annotations

from dataclasses import dataclass

from packtrain.plan import Input
from packtrain.planner.stream_planner import STREAM, is_compressed, is_indexable_archive
from packtrain.stream.read_groups import DEFAULT_READ_BYTES

STAGE = "stage"


@dataclass(frozen=True)
class ModeCost:
    """The cost of one mode; None where it is unknown."""

    mode: str  # stage, stream
    is_selected: bool
    startup_bytes: int | None  # read before the first batch
    bytes_per_epoch: int | None  # read in each epoch
    disk_bytes: int | None  # needed, including an estimate of unpacked archives
    caches_reads: bool = False  # samples are cached on disk within `limits.disk`


def compare_modes(
    input_: Input, size_bytes: int | None, staged_disk_bytes: int | None, disk_limit_bytes: int | None
) -> tuple[ModeCost, ...]:
    """Return the costs of both modes, or () if the input can only be staged.

    Args:
        input_: The input.
        size_bytes: Its size.
        staged_disk_bytes: The disk space that staging needs.
        disk_limit_bytes: The job's `limits.disk`.
    """
    if input_.mode != STREAM and not _can_stream(input_):
        return ()
    is_streamed = input_.mode == STREAM
    first_read = DEFAULT_READ_BYTES if size_bytes is None else min(DEFAULT_READ_BYTES, size_bytes)
    return (
        ModeCost(STAGE, not is_streamed, size_bytes, 0, staged_disk_bytes),
        ModeCost(STREAM, is_streamed, first_read, size_bytes, 0, caches_reads=disk_limit_bytes is not None),
    )


def _can_stream(input_: Input) -> bool:
    """Return whether the input is a folder, or archives that would be unpacked, judging by the names."""
    locations = [input_.prefix] if input_.prefix else [file.locations[0] for file in input_.files]
    if any(is_compressed(location.url) for location in locations):
        return False
    if input_.prefix:
        return True
    return input_.unpack == "auto" and all(is_indexable_archive(location.url) for location in locations)
