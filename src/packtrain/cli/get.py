"""packtrain get"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from packtrain.cli.access import Access, access_options
from packtrain.cli.following import Follower, stopping
from packtrain.cli.getting import Getting, Got, Wanted, account_of, listed, refs_of, targets
from packtrain.cli.hints import hinted
from packtrain.cli.options import digest_option, patience_option
from packtrain.cli.output import count, dry_run_option, json_option, show
from packtrain.errors import FailedError, UsageError
from packtrain.plan import Digest, Item
from packtrain.planner.data import name_of
from packtrain.transfer.address import shown
from packtrain.transfer.registry import source_for
from packtrain.watch import figures
from packtrain.watch.transfers import account_line

_GOES_ON = "what has arrived is kept, and the same command goes on from there"
_STARTS_AGAIN = "nothing was unpacked yet; the same command starts again"
_VERIFIED = {"checksums": "verified by the checksums file", None: "not verified: the server gave no digest"}


@click.command(name="get")
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.option("-o", "--output", metavar="FILE|FOLDER", help="Where to; a folder if it is one or ends in /.")
@click.option("--mirror", "mirrors", metavar="URL", multiple=True, help="Another address of the same file; repeatable.")
@digest_option("sha256", "The digest that the file must have, in hexadecimal or base64.")
@digest_option("md5", "The same, where only an MD5 is known.")
@digest_option("crc32c", "The same, where only a CRC-32C is known.")
@click.option("--checksums", metavar="FILE|URL", help="Its checksums file: bad blocks alone are fetched again.")
@patience_option("How long failing sources are asked again.")
@click.option("--unpack", is_flag=True, help="Unpack into the folder of -o, which must be new or empty.")
@click.option("--nested", is_flag=True, help="With --unpack: a tar of tars; each inner tar becomes a folder.")
@click.option("--force", is_flag=True, help="Replace a file that exists and differs.")
@access_options
@dry_run_option
@json_option
def command(
    urls: tuple[str, ...],
    output: str | None,
    mirrors: tuple[str, ...],
    sha256: str | None,
    md5: str | None,
    crc32c: str | None,
    checksums: str | None,
    patience: float,
    unpack: bool,
    nested: bool,
    force: bool,
    access: Access,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Fetch files: from several sources at once, resumed, verified.

    Addresses begin with https://, http://, osdf:///, pelican://, s3:// or file://; one that ends in / means
    all below it. The exit code tells what failed (docs/reference/failures.md). After Ctrl-C or a crash the
    same command goes on.
    """
    digest = _digest(sha256=sha256, md5=md5, crc32c=crc32c)
    _refuse_misfits(urls, output, (mirrors, digest, checksums), unpack, nested)
    below = any(url.endswith("/") for url in urls)
    wanted = _wanted(urls, output, mirrors, digest, access, folder=unpack or below)
    if dry_run:
        _show_plan(wanted, access, as_json)
        return
    with stopping(_STARTS_AGAIN if unpack else _GOES_ON) as stop, Follower(quiet=as_json) as follower:
        getting = Getting(access, patience, stop, follower)
        if checksums is not None:
            wanted = [_with_checksums(getting, wanted[0], checksums, urls[0])]
        if unpack:
            got = replace(getting, nested=nested).get_unpacked(wanted, Path(output or ""))
        else:
            got = [getting.get(one, force=force) for one in wanted]
    show(as_json, {"files": [one.to_data() for one in got]}, lambda out: _text(out, got))


def _digest(**given: str | None) -> Digest | None:
    found = [Digest(algorithm, value) for algorithm, value in given.items() if value]
    if len(found) > 1:
        raise UsageError(f"give one digest, not both --{found[0].algorithm} and --{found[1].algorithm}")
    return found[0] if found else None


def _refuse_misfits(
    urls: Sequence[str], output: str | None, of_one_file: Sequence[object], unpack: bool, nested: bool
) -> None:
    if any(of_one_file) and (len(urls) > 1 or urls[0].endswith("/")):
        raise UsageError("--mirror, --checksums and a digest belong to one file; get the files one by one")
    if unpack and output is None:
        raise UsageError("--unpack needs the folder to unpack into: -o FOLDER")
    if nested and not unpack:
        raise UsageError("--nested says how to unpack: give --unpack as well")


def _wanted(
    urls: Sequence[str],
    output: str | None,
    mirrors: Sequence[str],
    digest: Digest | None,
    access: Access,
    *,
    folder: bool,
) -> list[Wanted]:
    items = [
        item
        for url in urls
        for item in (listed(access, url) if url.endswith("/") else [_item(access, url, mirrors, digest)])
    ]
    found = targets([item.name for item in items], output, folder=folder)
    return [Wanted(item, target) for item, target in zip(items, found, strict=True)]


def _item(access: Access, url: str, mirrors: Sequence[str], digest: Digest | None) -> Item:
    return Item(name_of(url), refs_of(access, url, mirrors), digest=digest)


def _with_checksums(getting: Getting, wanted: Wanted, given: str, url: str) -> Wanted:
    checksums = getting.read_checksums(given, url)
    return replace(wanted, item=replace(wanted.item, size=checksums.size), checksums=checksums)


def _text(out: Console, got: Sequence[Got]) -> None:
    for one in got:
        out.print(f"{one.path}: {_told(one)}", markup=False)


def _told(got: Got) -> str:
    verified = _VERIFIED.get(got.verified_by) or f"verified by {got.verified_by}"
    if got.fetched is None:
        return f"already there; {verified if got.verified_by else 'its size is right, but the server gave no digest'}"
    files = f"; unpacked {count(got.unpacked.files, 'file')}" if got.unpacked else ""
    return f"{account_line(account_of(got.fetched))} · {verified}{files}"


def _show_plan(wanted: Sequence[Wanted], access: Access, as_json: bool) -> None:
    """Asks every source, and fails as `get` would if none of a file's sources has it."""
    files = [{"path": str(one.target), "sources": _asked(one.item, access)} for one in wanted]
    show(as_json, {"files": files}, lambda out: _plan_text(out, files))


def _asked(item: Item, access: Access) -> list[dict[str, Any]]:
    sources: list[dict[str, Any]] = []
    errors: list[FailedError] = []
    for ref in item.sources:
        try:
            info = source_for(ref, access.reveal).stat(ref)
            sources.append({"url": shown(ref.url), "bytes": info.size, "digest": info.digest and vars(info.digest)})
        except FailedError as error:
            errors.append(error)
            sources.append({"url": shown(ref.url), "error": str(error)})
    if len(errors) == len(sources):
        raise hinted(errors[0])
    return sources


def _plan_text(out: Console, files: Sequence[dict[str, Any]]) -> None:
    for file in files:
        out.print(f"would get {file['path']}", markup=False)
        for source in file["sources"]:
            out.print(f"  {source['url']}: {source.get('error') or figures.size(source['bytes'])}", markup=False)
