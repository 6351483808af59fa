"""Write the block checksums of a local file, and find its bad blocks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from packtrain.errors import NotFoundError, UsageError
from packtrain.events import FAILURE_KINDS
from packtrain.transfer.api import ByteRange
from packtrain.transfer.integrity.block_checksums import (
    CHECKSUMS_SUFFIX,
    BlockChecksums,
    choose_block_bytes,
    find_bad_blocks,
    find_block_problem,
    make_checksums,
    read_checksums,
    write_checksums,
)
from packtrain.transfer.progress import ProgressCallback

__all__ = ["CHECKSUMS_SUFFIX", "BlockChecksums", "Verification", "create_checksums", "load_checksums", "verify_file"]


@dataclass(frozen=True)
class Verification:
    """How a file compares with its checksums."""

    size: int
    expected_size: int
    n_blocks: int
    bad_blocks: dict[int, ByteRange]  # by block number

    @property
    def is_ok(self) -> bool:
        return not self.bad_blocks and self.size == self.expected_size

    @property
    def exit_code(self) -> int:
        return 0 if self.is_ok else FAILURE_KINDS["digest_mismatch"].exit_code


def create_checksums(
    file: Path, block_bytes: int | None, target: Path, on_progress: ProgressCallback
) -> BlockChecksums:
    """Hash a file and write its checksums file.

    Args:
        file: The file to hash.
        block_bytes: Size of a block; None: chosen by the size of the file.
        target: The checksums file to write.
        on_progress: Called with the bytes hashed so far.
    """
    _validate_block_size(file, block_bytes)
    checksums = make_checksums(file, block_bytes, on_progress)
    write_checksums(checksums, target)
    return checksums


def _validate_block_size(file: Path, block_bytes: int | None) -> None:
    if block_bytes is not None and block_bytes < 1:
        raise UsageError("--block-size must be at least one byte")
    size = file.stat().st_size
    problem = find_block_problem(choose_block_bytes(size) if block_bytes is None else block_bytes, size)
    if problem:
        remedy = "split the file" if block_bytes is None else "choose another --block-size"
        raise UsageError(f"{file}: {problem}; {remedy}")


def verify_file(file: Path, checksums: BlockChecksums, on_progress: ProgressCallback) -> Verification:
    """Compare a file with its checksums."""
    bad_blocks = {number: checksums.block_range(number) for number in find_bad_blocks(file, checksums, on_progress)}
    return Verification(file.stat().st_size, checksums.size, len(checksums.block_sha256), bad_blocks)


def load_checksums(path: Path) -> BlockChecksums:
    """Read a checksums file. Raises NotFoundError if it is not readable."""
    try:
        return read_checksums(path)
    except OSError as error:
        raise NotFoundError(f"cannot read the checksums file {path}: {error.strerror}") from None
