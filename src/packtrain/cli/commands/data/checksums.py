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
from packtrain.cli.ui.output import count, json_option, show
from packtrain.cli.ui.transfer_progress import Follower, stopping
from packtrain.errors import NotFoundError, UsageError
from packtrain.events import FAILURE_KINDS
from packtrain.transfer.block_checksums import (
    SUFFIX,
    Checksums,
    Progress,
    bad_blocks,
    block_for,
    make_checksums,
    misfit,
    read_checksums,
    write_checksums,
)

_SHOWN = 20


@click.command(name="checksums")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help=f"Where to; by default FILE{SUFFIX}.")
@click.option(
    "--block",
    metavar="SIZE",
    callback=options.size,
    help="Size of a block, 4MiB at most; by default as suits the file.",
)
@click.option("--verify", type=click.Path(path_type=Path), help="Verify the file against this checksums file.")
@json_option
def command(file: Path, output: Path | None, block: int | None, verify: Path | None, as_json: bool) -> None:
    """Write the checksums file of a data file: a sha256 for every block, so that bad blocks alone are fetched again.

    With --verify it says which blocks are bad; the exit code is 33 if there are any.
    """
    if not file.is_file():
        raise NotFoundError(f"there is no file {file}")
    if verify is not None:
        _verify(file, load(verify), as_json)
    else:
        _make(file, block, output or file.with_name(file.name + SUFFIX), as_json)


def _make(file: Path, block: int | None, target: Path, as_json: bool) -> None:
    _refuse_misfit(file, block)
    with _shown(file, as_json) as progress:
        made = make_checksums(file, block, progress)
        write_checksums(made, target)
    data = {"path": str(target), "size": made.size, "block": made.block, "blocks": len(made.sha256)}
    words = f"{target}: {count(len(made.sha256), 'block')} of {formatting.size(made.block)}; sha256 {made.whole}"
    show(as_json, {**data, "sha256": made.whole}, lambda out: out.print(words, markup=False))


def _refuse_misfit(file: Path, block: int | None) -> None:
    if block is not None and block < 1:
        raise UsageError("a block has at least one byte")
    size = file.stat().st_size
    unfit = misfit(block_for(size) if block is None else block, size)
    if unfit:
        raise UsageError(f"{file}: {unfit}; {'split the file' if block is None else 'choose another --block'}")


def _verify(file: Path, checksums: Checksums, as_json: bool) -> None:
    with _shown(file, as_json) as progress:
        bad = bad_blocks(file, checksums, progress)
    size = file.stat().st_size
    show(as_json, _verdict(file, size, checksums, bad), lambda out: _text(out, file, size, checksums, bad))
    if bad or size != checksums.size:
        raise click.exceptions.Exit(FAILURE_KINDS["digest_mismatch"].exit_code)


def _verdict(file: Path, size: int, checksums: Checksums, bad: list[int]) -> dict[str, Any]:
    spans = [{"block": index, **vars(checksums.span(index))} for index in bad]
    return {
        "path": str(file),
        "size": size,
        "wanted_size": checksums.size,
        "blocks": len(checksums.sha256),
        "bad": spans,
        "ok": not bad and size == checksums.size,
    }


def _text(out: Console, file: Path, size: int, checksums: Checksums, bad: list[int]) -> None:
    blocks = count(len(checksums.sha256), "block")
    if size != checksums.size:
        out.print(f"{file} has {size} bytes, but should have {checksums.size}", markup=False)
    if not bad:
        out.print(f"{file}: all {blocks} are right", markup=False)
        return
    out.print(f"{file}: {len(bad)} of {blocks} are bad:", markup=False)
    for index in bad[:_SHOWN]:
        span = checksums.span(index)
        out.print(f"  block {index}: bytes {span.start} to {span.stop}", markup=False)
    if len(bad) > _SHOWN:
        out.print(f"  … and {len(bad) - _SHOWN} more")


@contextmanager
def _shown(file: Path, quiet: bool) -> Iterator[Progress]:
    with stopping("nothing was written") as stop, Follower(quiet) as follower:
        follower.begin("hash", file.name)

        def progress(done: int, total: int | None) -> None:
            stop.check()
            follower.progress(done, total)

        yield progress


def load(path: Path) -> Checksums:
    try:
        return read_checksums(path)
    except OSError as error:
        raise NotFoundError(f"the checksums file {path} cannot be read: {error.strerror}") from None
