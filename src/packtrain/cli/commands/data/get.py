"""packtrain get"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console

from packtrain import formatting
from packtrain.cli.ui.credentials import credential_options
from packtrain.cli.ui.options import digest_option, retry_timeout_option
from packtrain.cli.ui.output import add_hint, dry_run_option, json_option, print_result
from packtrain.cli.ui.transfer_progress import TransferProgress, cancel_on_signal
from packtrain.data.credentials import CredentialOptions
from packtrain.data.download import Downloader, DownloadResult, check_single_file, choose_digest, download
from packtrain.errors import FailedError, UsageError
from packtrain.formatting import pluralize
from packtrain.views.transfer import fetch_totals, format_totals

_RESUME_HINT = "partial downloads are kept; run the same command again to resume"
_RESTART_HINT = "nothing was unpacked; run the same command again to start over"
_VERIFICATION_TEXTS = {"checksums": "verified with the checksums file", None: "not verified: the server sent no digest"}


@click.command(name="get")
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.option("-o", "--output", metavar="FILE|FOLDER", help="File to write; a folder if it exists as one or ends in /.")
@click.option("--mirror", "mirrors", metavar="URL", multiple=True, help="Another URL of the same file; repeatable.")
@digest_option("sha256", "Digest that the file must have, in hexadecimal or base64.")
@digest_option("md5", "The same, as an MD5.")
@digest_option("crc32c", "The same, as a CRC-32C.")
@click.option("--checksums", metavar="FILE|URL", help="Checksums file, to download only bad blocks again.")
@retry_timeout_option("How long to retry when all sources fail.")
@click.option("--unpack", is_flag=True, help="Unpack into the folder given by -o, which must be new or empty.")
@click.option("--nested", is_flag=True, help="With --unpack: unpack a tar of tars, each inner tar to a folder.")
@click.option("--force", is_flag=True, help="Download even if the file exists, and replace it.")
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
    """Download files from several sources at once, and verify them.

    URLs begin with https://, http://, osdf:///, pelican://, s3:// or file://. A URL that ends in / means all files
    below it (not with http), as does ?recursive at the end of an osdf or pelican URL. The exit code shows what failed
    (docs/reference/failures.md). After Ctrl-C or a crash, run the same command again to resume.
    """
    digest = choose_digest(sha256=sha256, md5=md5, crc32c=crc32c)
    _validate_options(output, unpack, nested)
    with (
        cancel_on_signal(_RESTART_HINT if unpack else _RESUME_HINT) as cancel_token,
        TransferProgress(quiet=as_json) as progress,
    ):
        try:
            if dry_run:
                downloader = Downloader(credentials, retry_timeout_s, cancel_token.check_cancelled, progress)
                if checksums is not None:
                    check_single_file(urls)
                requests = downloader.make_requests(urls, output, mirrors, digest, to_folder=unpack)
                planned = [downloader.query_sources(request) for request in requests]
            else:
                results = download(
                    urls,
                    output,
                    credentials,
                    mirrors=mirrors,
                    digest=digest,
                    checksums=checksums,
                    unpack=unpack,
                    nested=nested,
                    force=force,
                    retry_timeout_s=retry_timeout_s,
                    check_cancelled=cancel_token.check_cancelled,
                    progress=progress,
                )
        except FailedError as error:
            raise add_hint(error) from error
    if dry_run:
        print_result(as_json, {"files": planned}, lambda out: _print_plan(out, planned))
    else:
        data = {"files": [result.to_data() for result in results]}
        print_result(as_json, data, lambda out: _print_results(out, results))


def _validate_options(output: str | None, unpack: bool, nested: bool) -> None:
    if unpack and output is None:
        raise UsageError("--unpack needs a folder to unpack into: -o FOLDER")
    if nested and not unpack:
        raise UsageError("--nested needs --unpack")


def _print_results(out: Console, results: Sequence[DownloadResult]) -> None:
    for result in results:
        out.print(f"{result.path}: {_format_result(result)}")


def _format_result(result: DownloadResult) -> str:
    verified = _VERIFICATION_TEXTS.get(result.verified_by) or f"verified by {result.verified_by}"
    if result.fetch_result is None:
        return (
            f"already exists; {verified if result.verified_by else 'its size matches, but the server sent no digest'}"
        )
    files = f"; unpacked {pluralize(result.unpack_result.files, 'file')}" if result.unpack_result else ""
    return f"{format_totals(fetch_totals(result.fetch_result))} · {verified}{files}"


def _print_plan(out: Console, files: Sequence[dict[str, Any]]) -> None:
    for file in files:
        out.print(f"would get {file['path']}")
        for source in file["sources"]:
            out.print(f"  {source['url']}: {source.get('error') or formatting.format_size(source['bytes'])}")
