"""packtrain get"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from packtrain import formatting
from packtrain.cli.ui.credentials import CredentialOptions, credential_options
from packtrain.cli.ui.download import (
    Downloader,
    DownloadRequest,
    DownloadResult,
    choose_target_paths,
    make_locations,
    make_transfer_totals,
    refers_to_folder,
    reject_pack_query,
)
from packtrain.cli.ui.options import digest_option, retry_timeout_option
from packtrain.cli.ui.output import dry_run_option, json_option, pluralize, print_result
from packtrain.cli.ui.transfer_progress import TransferProgress, cancel_on_signal
from packtrain.errors import FailedError, UsageError
from packtrain.plan import Digest, RemoteFile
from packtrain.transfer.api import ObjectInfo
from packtrain.transfer.urls import filename_from_url, redact_url
from packtrain.views.transfer import format_totals

_RESUME_HINT = "what has arrived is kept, and the same command goes on from there"
_RESTART_HINT = "nothing was unpacked yet; the same command starts again"
_VERIFICATION_TEXTS = {"checksums": "verified by the checksums file", None: "not verified: the server gave no digest"}


@click.command(name="get")
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.option("-o", "--output", metavar="FILE|FOLDER", help="Where to; a folder if it is one or ends in /.")
@click.option("--mirror", "mirrors", metavar="URL", multiple=True, help="Another address of the same file; repeatable.")
@digest_option("sha256", "The digest that the file must have, in hexadecimal or base64.")
@digest_option("md5", "The same, where only an MD5 is known.")
@digest_option("crc32c", "The same, where only a CRC-32C is known.")
@click.option("--checksums", metavar="FILE|URL", help="Its checksums file: bad blocks alone are fetched again.")
@retry_timeout_option("How long failing sources are asked again.")
@click.option("--unpack", is_flag=True, help="Unpack into the folder of -o, which must be new or empty.")
@click.option("--nested", is_flag=True, help="With --unpack: a tar of tars; each inner tar becomes a folder.")
@click.option("--force", is_flag=True, help="Fetch it even if the file exists, and replace that.")
@credential_options
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
    retry_timeout_s: float,
    unpack: bool,
    nested: bool,
    force: bool,
    credentials: CredentialOptions,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Fetch files: from several sources at once, resumed, verified.

    Addresses begin with https://, http://, osdf:///, pelican://, s3:// or file://. One that ends in / means all
    below it (not over http), and so does ?recursive behind one of a federation. The exit code tells what failed
    (docs/reference/failures.md). After Ctrl-C or a crash the same command goes on.
    """
    digest = _make_digest(sha256=sha256, md5=md5, crc32c=crc32c)
    _validate_options(urls, output, (mirrors, digest, checksums), unpack, nested)
    with (
        cancel_on_signal(_RESTART_HINT if unpack else _RESUME_HINT) as stop,
        TransferProgress(quiet=as_json) as follower,
    ):
        getting = Downloader(credentials, retry_timeout_s, stop, follower, nested)
        wanted = _make_requests(
            getting, urls, output, mirrors, digest, to_folder=unpack or any(map(refers_to_folder, urls))
        )
        if checksums is not None and not dry_run:
            wanted = [_add_checksums(getting, wanted[0], checksums, urls[0])]
        if dry_run:
            planned = [_plan_download(getting, one) for one in wanted]
        elif unpack:
            got = getting.download_and_unpack(wanted, Path(output or ""))
        else:
            got = [getting.download(one, force=force) for one in wanted]
    if dry_run:
        print_result(as_json, {"files": planned}, lambda out: _print_plan(out, planned))
    else:
        print_result(as_json, {"files": [one.to_data() for one in got]}, lambda out: _print_results(out, got))


def _make_digest(**values: str | None) -> Digest | None:
    found = [Digest(algorithm, value) for algorithm, value in values.items() if value]
    if len(found) > 1:
        raise UsageError(f"give one digest, not both --{found[0].algorithm} and --{found[1].algorithm}")
    return found[0] if found else None


def _validate_options(
    urls: Sequence[str], output: str | None, single_file_options: Sequence[object], unpack: bool, nested: bool
) -> None:
    for url in urls:
        reject_pack_query(url, "to unpack an archive, give --unpack -o FOLDER")
    if any(single_file_options) and (len(urls) > 1 or refers_to_folder(urls[0])):
        raise UsageError("--mirror, --checksums and a digest belong to one file; get the files one by one")
    if unpack and output is None:
        raise UsageError("--unpack needs the folder to unpack into: -o FOLDER")
    if nested and not unpack:
        raise UsageError("--nested says how to unpack: give --unpack as well")


def _make_requests(
    downloader: Downloader,
    urls: Sequence[str],
    output: str | None,
    mirrors: Sequence[str],
    digest: Digest | None,
    *,
    to_folder: bool,
) -> list[DownloadRequest]:
    items = [
        item
        for url in urls
        for item in (
            downloader.list_folder(url)
            if refers_to_folder(url)
            else [_make_remote_file(downloader.credentials, url, mirrors, digest)]
        )
    ]
    found = choose_target_paths([item.name for item in items], output, is_folder=to_folder)
    return [DownloadRequest(item, target) for item, target in zip(items, found, strict=True)]


def _make_remote_file(
    credentials: CredentialOptions, url: str, mirrors: Sequence[str], digest: Digest | None
) -> RemoteFile:
    return RemoteFile(filename_from_url(url), make_locations(credentials, url, mirrors), digest=digest)


def _add_checksums(downloader: Downloader, request: DownloadRequest, path_or_url: str, url: str) -> DownloadRequest:
    checksums = downloader.read_checksums(path_or_url, url)
    return replace(request, remote_file=replace(request.remote_file, size=checksums.size), checksums=checksums)


def _print_results(out: Console, results: Sequence[DownloadResult]) -> None:
    for one in results:
        out.print(f"{one.path}: {_format_result(one)}", markup=False)


def _format_result(result: DownloadResult) -> str:
    verified = _VERIFICATION_TEXTS.get(result.verified_by) or f"verified by {result.verified_by}"
    if result.fetch_result is None:
        return (
            f"already there; {verified if result.verified_by else 'its size is right, but the server gave no digest'}"
        )
    files = f"; unpacked {pluralize(result.unpack_result.files, 'file')}" if result.unpack_result else ""
    return f"{format_totals(make_transfer_totals(result.fetch_result))} · {verified}{files}"


def _plan_download(downloader: Downloader, request: DownloadRequest) -> dict[str, Any]:
    """Asks every source, and fails as `get` would if none of the file's sources has it."""
    downloader.progress.start("ask", request.remote_file.name)
    answers = zip(request.remote_file.locations, downloader.stat_all(request.remote_file), strict=True)
    return {
        "path": str(request.target),
        "sources": [{"url": redact_url(ref.url), **_stat_data(answer)} for ref, answer in answers],
    }


def _stat_data(stat_result: ObjectInfo | FailedError) -> dict[str, Any]:
    if isinstance(stat_result, FailedError):
        return {"error": str(stat_result)}
    return {"bytes": stat_result.size, "digest": stat_result.digest and vars(stat_result.digest)}


def _print_plan(out: Console, files: Sequence[dict[str, Any]]) -> None:
    for file in files:
        out.print(f"would get {file['path']}", markup=False)
        for source in file["sources"]:
            out.print(
                f"  {source['url']}: {source.get('error') or formatting.format_size(source['bytes'])}", markup=False
            )
