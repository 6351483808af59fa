"""packtrain get"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from packtrain import formatting
from packtrain.cli.ui.credentials import Access, access_options
from packtrain.cli.ui.download import Getting, Got, Wanted, account_of, is_below, refs_of, refuse_packing, targets
from packtrain.cli.ui.options import digest_option, patience_option
from packtrain.cli.ui.output import count, dry_run_option, json_option, show
from packtrain.cli.ui.transfer_progress import Follower, stopping
from packtrain.errors import FailedError, UsageError
from packtrain.plan import Digest, Item
from packtrain.transfer.api import ObjectInfo
from packtrain.transfer.urls import name_of, shown
from packtrain.views.transfer import account_line

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
@click.option("--force", is_flag=True, help="Fetch it even if the file exists, and replace that.")
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

    Addresses begin with https://, http://, osdf:///, pelican://, s3:// or file://. One that ends in / means all
    below it (not over http), and so does ?recursive behind one of a federation. The exit code tells what failed
    (docs/reference/failures.md). After Ctrl-C or a crash the same command goes on.
    """
    digest = _digest(sha256=sha256, md5=md5, crc32c=crc32c)
    _refuse_misfits(urls, output, (mirrors, digest, checksums), unpack, nested)
    with stopping(_STARTS_AGAIN if unpack else _GOES_ON) as stop, Follower(quiet=as_json) as follower:
        getting = Getting(access, patience, stop, follower, nested)
        wanted = _wanted(getting, urls, output, mirrors, digest, folder=unpack or any(map(is_below, urls)))
        if checksums is not None and not dry_run:
            wanted = [_with_checksums(getting, wanted[0], checksums, urls[0])]
        if dry_run:
            planned = [_planned(getting, one) for one in wanted]
        elif unpack:
            got = getting.get_unpacked(wanted, Path(output or ""))
        else:
            got = [getting.get(one, force=force) for one in wanted]
    if dry_run:
        show(as_json, {"files": planned}, lambda out: _plan_text(out, planned))
    else:
        show(as_json, {"files": [one.to_data() for one in got]}, lambda out: _text(out, got))


def _digest(**given: str | None) -> Digest | None:
    found = [Digest(algorithm, value) for algorithm, value in given.items() if value]
    if len(found) > 1:
        raise UsageError(f"give one digest, not both --{found[0].algorithm} and --{found[1].algorithm}")
    return found[0] if found else None


def _refuse_misfits(
    urls: Sequence[str], output: str | None, of_one_file: Sequence[object], unpack: bool, nested: bool
) -> None:
    for url in urls:
        refuse_packing(url, "to unpack an archive, give --unpack -o FOLDER")
    if any(of_one_file) and (len(urls) > 1 or is_below(urls[0])):
        raise UsageError("--mirror, --checksums and a digest belong to one file; get the files one by one")
    if unpack and output is None:
        raise UsageError("--unpack needs the folder to unpack into: -o FOLDER")
    if nested and not unpack:
        raise UsageError("--nested says how to unpack: give --unpack as well")


def _wanted(
    getting: Getting,
    urls: Sequence[str],
    output: str | None,
    mirrors: Sequence[str],
    digest: Digest | None,
    *,
    folder: bool,
) -> list[Wanted]:
    items = [
        item
        for url in urls
        for item in (getting.listed(url) if is_below(url) else [_item(getting.access, url, mirrors, digest)])
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


def _planned(getting: Getting, wanted: Wanted) -> dict[str, Any]:
    """Asks every source, and fails as `get` would if none of the file's sources has it."""
    getting.follower.begin("ask", wanted.item.name)
    answers = zip(wanted.item.sources, getting.asked(wanted.item), strict=True)
    return {
        "path": str(wanted.target),
        "sources": [{"url": shown(ref.url), **_said(answer)} for ref, answer in answers],
    }


def _said(answer: ObjectInfo | FailedError) -> dict[str, Any]:
    if isinstance(answer, FailedError):
        return {"error": str(answer)}
    return {"bytes": answer.size, "digest": answer.digest and vars(answer.digest)}


def _plan_text(out: Console, files: Sequence[dict[str, Any]]) -> None:
    for file in files:
        out.print(f"would get {file['path']}", markup=False)
        for source in file["sources"]:
            out.print(f"  {source['url']}: {source.get('error') or formatting.size(source['bytes'])}", markup=False)
