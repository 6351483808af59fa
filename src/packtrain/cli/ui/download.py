"""What `packtrain get` does: where each file goes, whether it is there already, fetching it, unpacking it."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs

from packtrain.cli.commands.data.checksums import load_checksums
from packtrain.cli.ui.credentials import CredentialOptions
from packtrain.cli.ui.hints import add_hint
from packtrain.cli.ui.transfer_progress import CancelToken, TransferProgress
from packtrain.errors import FailedError, NotFoundError, UsageError
from packtrain.plan import Digest, Location, RemoteFile
from packtrain.transfer.api import ObjectInfo
from packtrain.transfer.archive.byte_stream import stream_from_reader
from packtrain.transfer.archive.unpack import UnpackResult, can_stream, unpack, unpack_stream
from packtrain.transfer.block_checksums import CHECKSUMS_SUFFIX, BlockChecksums, find_bad_blocks
from packtrain.transfer.content_checks import SNIFF_BYTES
from packtrain.transfer.digests import Digests, check_digest_affordable
from packtrain.transfer.fetch import FetchResult, fetch
from packtrain.transfer.cancellation import cancellation_scope
from packtrain.transfer.ordered_download import OrderedDownload, should_refetch
from packtrain.transfer.registry import get_source
from packtrain.transfer.retry import retry
from packtrain.transfer.urls import check_listed_name, filename_from_url, is_folder_url, redact_url, url_scheme
from packtrain.views.transfer import TransferTotals

T = TypeVar("T")
_READ_BYTES = 1 << 20
FEDERATION_SCHEMES = ("osdf", "pelican")
_BUSY_FAILURE_KINDS = (
    "service_unavailable",
)  # whoever only asks wants to know soon: what is dead or missing is told at once
_NON_STREAMABLE_SUFFIXES = (".zip", ".7z", ".rar")  # their table of contents stands at the end


@dataclass(frozen=True)
class DownloadRequest:
    remote_file: RemoteFile
    target: Path
    checksums: BlockChecksums | None = None


@dataclass(frozen=True)
class DownloadResult:
    url: str
    path: Path
    verified_by: str | None
    fetch_result: FetchResult | None = None  # None: it was there already
    unpack_result: UnpackResult | None = None

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "url": self.url,
            "path": str(self.path),
            "already_there": self.fetch_result is None,
            "verified_by": self.verified_by,
        }
        if self.fetch_result is not None:
            figures = {key: value for key, value in vars(self.fetch_result).items() if key not in ("source", *data)}
            data |= {**figures, "sha256": self.fetch_result.sha256 or None}
        if self.unpack_result is not None:
            data["unpacked"] = vars(self.unpack_result)
        return data


@dataclass(frozen=True)
class Downloader:
    """The manner that all files of one call are got in."""

    credentials: CredentialOptions
    retry_timeout_s: float
    cancel_token: CancelToken
    progress: TransferProgress
    nested: bool = False  # tars in an archive are unpacked, each into a folder of its own

    def download(self, request: DownloadRequest, *, force: bool) -> DownloadResult:
        if request.target.exists() and not force:
            return self._verify_existing(request)
        request.target.parent.mkdir(parents=True, exist_ok=True)
        return self._fetch(request)

    def _verify_existing(self, request: DownloadRequest) -> DownloadResult:
        """A file that stands there is never replaced; it may be the one that is wanted."""
        path, checksums = request.target, request.checksums
        if not path.is_file():
            raise UsageError(f"{path} exists and is no file; choose another place with -o")
        self.progress.start("check", path.name)
        if checksums is not None and (path.stat().st_size != checksums.size or find_bad_blocks(path, checksums)):
            raise _existing_file_error(path, "it differs from the checksums file")
        if checksums is not None:
            return _existing_file_result(request, "checksums")
        info = ObjectInfo() if request.remote_file.digest else self._stat_any(request.remote_file)
        return _existing_file_result(
            request, self._verify_file(path, request.remote_file.digest or info.digest, info.size)
        )

    def _verify_file(self, path: Path, digest: Digest | None, size: int | None) -> str | None:
        if digest is not None and self._compute_digest(path, digest) == digest.value.lower():
            return digest.algorithm
        if digest is not None:
            raise _existing_file_error(path, f"its {digest.algorithm} is not {digest.value}")
        if size != path.stat().st_size:
            raise _existing_file_error(path, f"it has {path.stat().st_size} bytes, and the source {size}")
        return None

    def _compute_digest(self, path: Path, digest: Digest) -> str:
        size, done = path.stat().st_size, 0
        check_digest_affordable(path.name, digest, size)
        digests = Digests(digest)
        with open(path, "rb") as file:
            while block := file.read(_READ_BYTES):
                self.cancel_token.check_cancelled()
                digests.update(block)
                done += len(block)
                self.progress.on_progress(done, size)
        return digests.hexdigest(digest.algorithm)

    def _stat_any(self, remote_file: RemoteFile) -> ObjectInfo:
        """As the first source that answers says."""
        return next(answer for answer in self.stat_all(remote_file) if isinstance(answer, ObjectInfo))

    def stat_all(self, remote_file: RemoteFile) -> list[ObjectInfo | FailedError]:
        """What each source says of the item. Fails as a fetch would if none has it."""
        return self._retry(lambda: _stat_locations(remote_file, self.credentials), failure_kinds=_BUSY_FAILURE_KINDS)

    def list_folder(self, url: str) -> list[RemoteFile]:
        """Everything below an address that means a folder."""
        self.progress.start("list", redact_url(url))
        ref = self.credentials.make_location(url, url)
        entries = self._retry(lambda: list(get_source(ref, self.credentials.resolve_secret).list(ref)))
        items = [RemoteFile(check_listed_name(entry.name, url), (entry.location,), entry.size) for entry in entries]
        if not items:
            raise NotFoundError(f"there is nothing below {redact_url(url)}")
        return items

    def _retry(self, operation: Callable[[], T], failure_kinds: Sequence[str] = ()) -> T:
        try:
            with cancellation_scope(self.cancel_token.check_cancelled):
                return retry(operation, self.retry_timeout_s, self.cancel_token.check_cancelled, failure_kinds)
        except FailedError as error:
            raise add_hint(error) from error

    def _fetch(self, request: DownloadRequest) -> DownloadResult:
        self.progress.start("fetch", request.remote_file.name, request.remote_file.size)
        try:
            fetched = fetch(
                request.remote_file,
                request.target,
                self.credentials.resolve_secret,
                retry_timeout_s=self.retry_timeout_s,
                check_cancelled=self.cancel_token.check_cancelled,
                on_progress=lambda done, total: None,
                checksums=request.checksums,
                on_snapshot=self.progress.on_snapshot,
            )
        except FailedError as error:
            raise add_hint(error) from error
        return DownloadResult(
            redact_url(request.remote_file.locations[0].url), request.target, fetched.verified_by or None, fetched
        )

    def download_and_unpack(self, requests: Sequence[DownloadRequest], folder: Path) -> list[DownloadResult]:
        """All archives into one folder, which appears when it is complete."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} exists and is not an empty folder; choose another one with -o")
        folder = folder.absolute()
        aside = folder.with_name(f".{folder.name}.packtrain-get")
        set_aside = [replace(one, target=aside / one.target.name) for one in requests]
        try:
            got = self._unpack_into(set_aside, aside / "unpacked")
            _move_into_place(aside / "unpacked", folder)
        except BaseException:
            shutil.rmtree(aside / "unpacked", ignore_errors=True)
            with contextlib.suppress(OSError):  # it stays if it holds a part of an archive, to go on with
                aside.rmdir()
            raise
        shutil.rmtree(aside)
        return [replace(one, path=folder) for one in got]

    def _unpack_into(self, requests: Sequence[DownloadRequest], staging_dir: Path) -> list[DownloadResult]:
        """What was damaged or replaced while it was unpacked as it came is got once more, as a file."""
        try:
            return _unpack_all(requests, staging_dir, self._unpack_while_downloading, self._download_then_unpack)
        except FailedError as error:
            if not should_refetch(error):
                raise add_hint(error) from error
            return _unpack_all(requests, staging_dir, self._download_then_unpack)

    def _unpack_while_downloading(self, request: DownloadRequest, folder: Path) -> DownloadResult | None:
        """Unpacked as it comes, with nothing of the archive on the disk; None if it cannot be."""
        item, began = request.remote_file, time.monotonic()
        if item.name.lower().endswith(_NON_STREAMABLE_SUFFIXES) or (
            request.checksums and not request.checksums.can_stream
        ):
            return None
        self.progress.start("unpack", item.name, item.size)
        with self._open_ordered_download(request) as download:
            flow = stream_from_reader(download)
            if not can_stream(flow.peek(SNIFF_BYTES)):
                return None
            done = unpack_stream(
                flow,
                item.name,
                folder,
                nested=self.nested,
                max_bytes=None,
                check_cancelled=self.cancel_token.check_cancelled,
                on_progress=lambda done, total: None,
            )
        fetched = download.make_result(time.monotonic() - began)
        return DownloadResult(redact_url(item.locations[0].url), folder, fetched.verified_by or None, fetched, done)

    def _open_ordered_download(self, request: DownloadRequest) -> OrderedDownload:
        return OrderedDownload(
            request.remote_file,
            self.credentials.resolve_secret,
            retry_timeout_s=self.retry_timeout_s,
            check_cancelled=self.cancel_token.check_cancelled,
            on_progress=self.progress.on_progress,
            checksums=request.checksums,
        )

    def _download_then_unpack(self, request: DownloadRequest, folder: Path) -> DownloadResult:
        """By way of a file: the order of what is in the archive wants it, or what came was damaged."""
        got = self._download_archive(request)
        self.progress.start("unpack", request.remote_file.name)
        done = unpack(
            request.target,
            folder,
            nested=self.nested,
            max_bytes=None,
            check_cancelled=self.cancel_token.check_cancelled,
            on_progress=self.progress.on_progress,
        )
        request.target.unlink()
        return replace(got, unpack_result=done)

    def _download_archive(self, request: DownloadRequest) -> DownloadResult:
        """What a call that was killed while unpacking left is used, if it is the right one."""
        try:
            return self.download(request, force=False)
        except UsageError:
            return self.download(request, force=True)

    def read_checksums(self, path_or_url: str, file_url: str) -> BlockChecksums:
        """From a file or an address."""
        if "://" not in path_or_url:
            return load_checksums(Path(path_or_url))
        with tempfile.TemporaryDirectory() as folder:
            item = RemoteFile(
                filename_from_url(file_url) + CHECKSUMS_SUFFIX, (self.credentials.make_location(path_or_url, file_url),)
            )  # as JSON it is no error's page
            return load_checksums(self._fetch(DownloadRequest(item, Path(folder, item.name))).path)


def _existing_file_result(request: DownloadRequest, verified_by: str | None) -> DownloadResult:
    return DownloadResult(redact_url(request.remote_file.locations[0].url), request.target, verified_by)


def _existing_file_error(path: Path, reason: str) -> UsageError:
    return UsageError(f"{path} exists, and {reason}; --force replaces it")


def _unpack_all(
    requests: Sequence[DownloadRequest],
    staging_dir: Path,
    *methods: Callable[[DownloadRequest, Path], DownloadResult | None],
) -> list[DownloadResult]:
    """Each archive in the first of the ways that can."""
    shutil.rmtree(staging_dir, ignore_errors=True)
    staging_dir.mkdir(parents=True)
    return [next(got for way in methods if (got := way(one, staging_dir))) for one in requests]


def _move_into_place(staging_dir: Path, folder: Path) -> None:
    """A folder that exists may be somebody's working folder: it stays the same one."""
    if not folder.exists():
        staging_dir.rename(folder)
        return
    for path in staging_dir.iterdir():
        path.rename(folder / path.name)


def _stat_locations(remote_file: RemoteFile, credentials: CredentialOptions) -> list[ObjectInfo | FailedError]:
    answers = [_try_stat(ref, credentials) for ref in remote_file.locations]
    errors = [answer for answer in answers if isinstance(answer, FailedError)]
    if len(errors) == len(answers):
        raise errors[0]
    return answers


def _try_stat(location: Location, credentials: CredentialOptions) -> ObjectInfo | FailedError:
    try:
        return get_source(location, credentials.resolve_secret).stat(location)
    except FailedError as error:
        return error


def refers_to_folder(url: str) -> bool:
    """Whether an address means all below it."""
    return url.endswith("/") or (url_scheme(url) in FEDERATION_SCHEMES and is_folder_url(url))


def reject_pack_query(url: str, advice: str) -> None:
    """`?pack=` is Pelican's own client's."""
    if url_scheme(url) in FEDERATION_SCHEMES and "pack" in parse_qs(url.partition("?")[2], keep_blank_values=True):
        raise UsageError(f"{redact_url(url)}: leave out `pack=` of the address; {advice}")


def choose_target_paths(names: Sequence[str], output: str | None, *, is_folder: bool) -> list[Path]:
    """-o as curl and wget have it: a folder if it is one or ends in /, else the file."""
    if output is None:
        found = [Path(name) for name in names]
    elif is_folder or output.endswith("/") or Path(output).is_dir():
        found = [Path(output, name) for name in names]
    elif len(names) > 1:
        raise UsageError(f"several files need a folder: -o {output}/")
    else:
        found = [Path(output)]
    twice = next((path for path in found if found.count(path) > 1), None)
    if twice is not None:
        raise UsageError(f"two files would both be {twice}; get them one by one, with -o")
    return found


def make_transfer_totals(fetch_result: FetchResult) -> TransferTotals:
    return TransferTotals(
        fetch_result.bytes,
        fetch_result.duration_s,
        tuple(fetch_result.bytes_by_source.items()),
        fetch_result.retries,
        fetch_result.stalls,
        fetch_result.hedges,
        fetch_result.wasted_bytes,
    )


def make_locations(credentials: CredentialOptions, url: str, mirrors: Sequence[str]) -> tuple[Location, ...]:
    return tuple(credentials.make_location(one, url) for one in (url, *mirrors))
