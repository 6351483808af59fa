"""packtrain checksums"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from packtrain import formatting
from packtrain.cli.ui import options
from packtrain.cli.ui.output import json_option, print_result
from packtrain.cli.ui.transfer_progress import TransferProgress, cancel_on_signal
from packtrain.data.checksums import (
    CHECKSUMS_SUFFIX,
    BlockChecksums,
    Verification,
    create_checksums,
    load_checksums,
    verify_file,
)
from packtrain.errors import NotFoundError
from packtrain.formatting import pluralize

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
    with _hashing_progress(file, as_json) as on_progress:
        checksums = create_checksums(file, block_bytes, target, on_progress)
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


def _verify_file(file: Path, checksums: BlockChecksums, as_json: bool) -> None:
    with _hashing_progress(file, as_json) as on_progress:
        verification = verify_file(file, checksums, on_progress)
    print_result(
        as_json, _verification_data(file, verification), lambda out: _print_verification(out, file, verification)
    )
    if verification.exit_code:
        raise click.exceptions.Exit(verification.exit_code)


def _verification_data(file: Path, verification: Verification) -> dict[str, Any]:
    return {
        "path": str(file),
        "size": verification.size,
        "expected_size": verification.expected_size,
        "n_blocks": verification.n_blocks,
        "bad_blocks": [{"block": n, **vars(byte_range)} for n, byte_range in verification.bad_blocks.items()],
        "ok": verification.is_ok,
    }


def _print_verification(out: Console, file: Path, verification: Verification) -> None:
    bad_blocks, blocks = verification.bad_blocks, pluralize(verification.n_blocks, "block")
    if verification.size != verification.expected_size:
        out.print(f"{file} has {verification.size} bytes, but should have {verification.expected_size}")
    if not bad_blocks:
        out.print(f"{file}: all {blocks} match")
        return
    out.print(f"{file}: {len(bad_blocks)} of {blocks} are bad:")
    for number, byte_range in list(bad_blocks.items())[:_MAX_BLOCKS_SHOWN]:
        out.print(f"  block {number}: bytes {byte_range.start} to {byte_range.stop}")
    if len(bad_blocks) > _MAX_BLOCKS_SHOWN:
        out.print(f"  … and {len(bad_blocks) - _MAX_BLOCKS_SHOWN} more")


@contextmanager
def _hashing_progress(file: Path, quiet: bool) -> Iterator[Callable[[int, int | None], None]]:
    with cancel_on_signal("nothing was written") as cancel_token, TransferProgress(quiet) as display:
        display.start("hash", file.name)

        def on_progress(done_bytes: int, total_bytes: int | None) -> None:
            cancel_token.check_cancelled()
            display.on_progress(done_bytes, total_bytes)

        yield on_progress
