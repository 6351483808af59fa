"""packtrain checksums"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from packtrain import formatting
from packtrain.cli.ui import options
from packtrain.cli.ui.output import json_option, print_result
from packtrain.cli.ui.transfer_progress import TransferProgress, cancel_on_signal
from packtrain.errors import NotFoundError, UsageError
from packtrain.events import FAILURE_KINDS
from packtrain.formatting import pluralize
from packtrain.transfer.download import load_checksums
from packtrain.transfer.integrity.block_checksums import (
    CHECKSUMS_SUFFIX,
    BlockChecksums,
    choose_block_bytes,
    find_bad_blocks,
    find_block_problem,
    make_checksums,
    write_checksums,
)
from packtrain.transfer.progress import ProgressCallback

_MAX_BLOCKS_SHOWN = 20


@click.command(name="checksums")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help=f"File to write (default: FILE{CHECKSUMS_SUFFIX})."
)
@click.option(
    "--block-size",
    "block_bytes",
    metavar="SIZE",
    callback=options.size_callback,
    help="Block size, at most 4MiB (default: chosen by file size).",
)
@click.option("--verify", type=click.Path(path_type=Path), help="Verify the file against this checksums file.")
@json_option
def command(file: Path, output: Path | None, block_bytes: int | None, verify: Path | None, as_json: bool) -> None:
    """Write a sha256 for every block of a file, so that downloads can replace only the bad blocks.

    With --verify, list the bad blocks of the file instead. The exit code is 33 if there are any.
    """
    if not file.is_file():
        raise NotFoundError(f"there is no file {file}")
    if verify is not None:
        _verify_file(file, load_checksums(verify), as_json)
    else:
        _create_checksums(file, block_bytes, output or file.with_name(file.name + CHECKSUMS_SUFFIX), as_json)


def _create_checksums(file: Path, block_bytes: int | None, target: Path, as_json: bool) -> None:
    _validate_block_size(file, block_bytes)
    with _hashing_progress(file, as_json) as progress:
        checksums = make_checksums(file, block_bytes, progress)
        write_checksums(checksums, target)
    n_blocks = len(checksums.block_sha256)
    data = {
        "path": str(target),
        "size": checksums.size,
        "block_bytes": checksums.block_bytes,
        "n_blocks": n_blocks,
        "sha256": checksums.file_sha256,
    }
    blocks = f"{pluralize(n_blocks, 'block')} of {formatting.format_size(checksums.block_bytes)}"
    text = f"{target}: {blocks}; sha256 {checksums.file_sha256}"
    print_result(as_json, data, lambda out: out.print(text))


def _validate_block_size(file: Path, block_bytes: int | None) -> None:
    if block_bytes is not None and block_bytes < 1:
        raise UsageError("--block-size must be at least one byte")
    size = file.stat().st_size
    problem = find_block_problem(choose_block_bytes(size) if block_bytes is None else block_bytes, size)
    if problem:
        remedy = "split the file" if block_bytes is None else "choose another --block-size"
        raise UsageError(f"{file}: {problem}; {remedy}")


def _verify_file(file: Path, checksums: BlockChecksums, as_json: bool) -> None:
    with _hashing_progress(file, as_json) as progress:
        bad_blocks = find_bad_blocks(file, checksums, progress)
    size = file.stat().st_size
    print_result(
        as_json,
        _verification_data(file, size, checksums, bad_blocks),
        lambda out: _print_verification(out, file, size, checksums, bad_blocks),
    )
    if bad_blocks or size != checksums.size:
        raise click.exceptions.Exit(FAILURE_KINDS["digest_mismatch"].exit_code)


def _verification_data(file: Path, size: int, checksums: BlockChecksums, bad_blocks: list[int]) -> dict[str, Any]:
    ranges = [{"block": number, **vars(checksums.block_range(number))} for number in bad_blocks]
    return {
        "path": str(file),
        "size": size,
        "expected_size": checksums.size,
        "n_blocks": len(checksums.block_sha256),
        "bad_blocks": ranges,
        "ok": not bad_blocks and size == checksums.size,
    }


def _print_verification(out: Console, file: Path, size: int, checksums: BlockChecksums, bad_blocks: list[int]) -> None:
    blocks = pluralize(len(checksums.block_sha256), "block")
    if size != checksums.size:
        out.print(f"{file} has {size} bytes, but should have {checksums.size}")
    if not bad_blocks:
        out.print(f"{file}: all {blocks} match")
        return
    out.print(f"{file}: {len(bad_blocks)} of {blocks} are bad:")
    for number in bad_blocks[:_MAX_BLOCKS_SHOWN]:
        byte_range = checksums.block_range(number)
        out.print(f"  block {number}: bytes {byte_range.start} to {byte_range.stop}")
    if len(bad_blocks) > _MAX_BLOCKS_SHOWN:
        out.print(f"  … and {len(bad_blocks) - _MAX_BLOCKS_SHOWN} more")


@contextmanager
def _hashing_progress(file: Path, quiet: bool) -> Iterator[ProgressCallback]:
    with cancel_on_signal("nothing was written") as cancel_token, TransferProgress(quiet) as display:
        display.start("hash", file.name)

        def on_progress(done_bytes: int, total_bytes: int | None) -> None:
            cancel_token.check_cancelled()
            display.on_progress(done_bytes, total_bytes)

        yield on_progress
