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
from packtrain.cli.ui.output import json_option, pluralize, print_result
from packtrain.cli.ui.transfer_progress import TransferProgress, cancel_on_signal
from packtrain.errors import NotFoundError, UsageError
from packtrain.events import FAILURE_KINDS
from packtrain.transfer.block_checksums import (
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

_MAX_BLOCKS_SHOWN = 20


@click.command(name="checksums")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help=f"Where to; by default FILE{CHECKSUMS_SUFFIX}.")
@click.option(
    "--block",
    metavar="SIZE",
    callback=options.size_callback,
    help="Size of a block, 4MiB at most; by default as suits the file.",
)
@click.option("--verify", type=click.Path(path_type=Path), help="Verify the file against this checksums file.")
@json_option
def command(file: Path, output: Path | None, block_bytes: int | None, verify: Path | None, as_json: bool) -> None:
    """Write the checksums file of a data file: a sha256 for every block, so that bad blocks alone are fetched again.

    With --verify it says which blocks are bad; the exit code is 33 if there are any.
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
        made = make_checksums(file, block_bytes, progress)
        write_checksums(made, target)
    data = {"path": str(target), "size": made.size, "block": made.block_bytes, "blocks": len(made.block_sha256)}
    words = f"{target}: {pluralize(len(made.block_sha256), 'block')} of {formatting.format_size(made.block_bytes)}; sha256 {made.file_sha256}"
    print_result(as_json, {**data, "sha256": made.file_sha256}, lambda out: out.print(words, markup=False))


def _validate_block_size(file: Path, block_bytes: int | None) -> None:
    if block_bytes is not None and block_bytes < 1:
        raise UsageError("a block has at least one byte")
    size = file.stat().st_size
    unfit = find_block_problem(choose_block_bytes(size) if block_bytes is None else block_bytes, size)
    if unfit:
        raise UsageError(f"{file}: {unfit}; {'split the file' if block_bytes is None else 'choose another --block'}")


def _verify_file(file: Path, checksums: BlockChecksums, as_json: bool) -> None:
    with _hashing_progress(file, as_json) as progress:
        bad = find_bad_blocks(file, checksums, progress)
    size = file.stat().st_size
    print_result(
        as_json,
        _verification_data(file, size, checksums, bad),
        lambda out: _print_verification(out, file, size, checksums, bad),
    )
    if bad or size != checksums.size:
        raise click.exceptions.Exit(FAILURE_KINDS["digest_mismatch"].exit_code)


def _verification_data(file: Path, size: int, checksums: BlockChecksums, bad_blocks: list[int]) -> dict[str, Any]:
    spans = [{"block": index, **vars(checksums.block_range(index))} for index in bad_blocks]
    return {
        "path": str(file),
        "size": size,
        "wanted_size": checksums.size,
        "blocks": len(checksums.block_sha256),
        "bad": spans,
        "ok": not bad_blocks and size == checksums.size,
    }


def _print_verification(
    out: Console, file: Path, size: int, checksums: BlockChecksums, bad_block_numbers: list[int]
) -> None:
    blocks = pluralize(len(checksums.block_sha256), "block")
    if size != checksums.size:
        out.print(f"{file} has {size} bytes, but should have {checksums.size}", markup=False)
    if not bad_block_numbers:
        out.print(f"{file}: all {blocks} are right", markup=False)
        return
    out.print(f"{file}: {len(bad_block_numbers)} of {blocks} are bad:", markup=False)
    for index in bad_block_numbers[:_MAX_BLOCKS_SHOWN]:
        span = checksums.block_range(index)
        out.print(f"  block {index}: bytes {span.start} to {span.stop}", markup=False)
    if len(bad_block_numbers) > _MAX_BLOCKS_SHOWN:
        out.print(f"  … and {len(bad_block_numbers) - _MAX_BLOCKS_SHOWN} more")


@contextmanager
def _hashing_progress(file: Path, quiet: bool) -> Iterator[ProgressCallback]:
    with cancel_on_signal("nothing was written") as stop, TransferProgress(quiet) as follower:
        follower.start("hash", file.name)

        def on_progress(done_bytes: int, total_bytes: int | None) -> None:
            stop.check_cancelled()
            follower.on_progress(done_bytes, total_bytes)

        yield on_progress


def load_checksums(path: Path) -> BlockChecksums:
    try:
        return read_checksums(path)
    except OSError as error:
        raise NotFoundError(f"the checksums file {path} cannot be read: {error.strerror}") from None
