"""Download files for `packtrain get`: choose target paths, verify existing files, fetch, and unpack."""

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

from packtrain.cli.ui.output import add_hint
from packtrain.cli.ui.transfer_progress import CancelToken, TransferProgress
from packtrain.errors import FailedError, NotFoundError, UsageError
from packtrain.plan import Digest, Location, RemoteFile
from packtrain.planner.url_credentials import CredentialOptions
from packtrain.transfer.api import ObjectInfo
from packtrain.transfer.archive.byte_stream import stream_from_reader
from packtrain.transfer.archive.unpack import UnpackResult, can_stream, unpack, unpack_stream
from packtrain.transfer.cancellation import cancellation_scope
from packtrain.transfer.fetch import FetchResult, fetch
from packtrain.transfer.integrity.block_checksums import (
    CHECKSUMS_SUFFIX,
    BlockChecksums,
    find_bad_blocks,
    read_checksums,
)
from packtrain.transfer.integrity.content_checks import SNIFF_BYTES
from packtrain.transfer.integrity.digests import Digests, check_digest_affordable
from packtrain.transfer.ordered_download import OrderedDownload, should_refetch
from packtrain.transfer.registry import get_source
from packtrain.transfer.retry import retry
from packtrain.transfer.urls import check_listed_name, filename_from_url, is_folder_url, redact_url, url_scheme
from packtrain.views.transfer import TransferTotals

T = TypeVar("T")
_READ_BYTES = 1 << 20
FEDERATION_SCHEMES = ("osdf", "pelican")
_RETRIED_STAT_FAILURES = ("service_unavailable",)  # a stat reports a dead host or a missing file at once
_NON_STREAMABLE_SUFFIXES = (".zip", ".7z", ".rar")  # their table of contents is at the end


@dataclass(frozen=True)
class DownloadRequest:
    """One file to download."""

    remote_file: RemoteFile
    target: Path
    checksums: BlockChecksums | None = None


@dataclass(frozen=True)
class DownloadResult:
    """What became of one request."""

    url: str
    path: Path
    verified_by: str | None
    fetch_result: FetchResult | None = None  # None: the file already existed
    unpack_result: UnpackResult | None = None

    def to_data(self) -> dict[str, Any]:
        """Return the result as data for --json."""
        data: dict[str, Any] = {
            "url": self.url,
            "path": str(self.path),
            "already_exists": self.fetch_result is None,
            "verified_by": self.verified_by,
        }
        if self.fetch_result is not None:
            stats = {key: value for key, value in vars(self.fetch_result).items() if key not in ("source", *data)}
            data |= {**stats, "sha256": self.fetch_result.sha256 or None}
        if self.unpack_result is not None:
            data["unpacked"] = vars(self.unpack_result)
        return data


@dataclass(frozen=True)
class Downloader:
    """Downloads files with the same credentials, retry timeout and progress display."""

    credentials: CredentialOptions
    retry_timeout_s: float
    cancel_token: CancelToken
    progress: TransferProgress
    nested: bool = False  # unpack tars inside an archive, each into a folder of its own

    def download(self, request: DownloadRequest, *, force: bool) -> DownloadResult:
        """Download a file, or verify it if it exists already and `force` is not given."""
        if request.target.exists() and not force:
            return self._verify_existing(request)
        request.target.parent.mkdir(parents=True, exist_ok=True)
        return self._fetch(request)

    def _verify_existing(self, request: DownloadRequest) -> DownloadResult:
        """Verify a file that already exists. Raises UsageError if it is a different one; it is never replaced."""
        path, checksums = request.target, request.checksums
        if not path.is_file():
            raise UsageError(f"{path} exists and is not a file; choose another path with -o")
        self.progress.start("check", path.name)
        if checksums is not None and (path.stat().st_size != checksums.size or find_bad_blocks(path, checksums)):
            raise _existing_file_error(path, "it does not match the checksums file")
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
            raise _existing_file_error(path, f"it has {path.stat().st_size} bytes, but the source has {size}")
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
        """Return the metadata from the first source that responds."""
        return next(info for info in self.stat_all(remote_file) if isinstance(info, ObjectInfo))

    def stat_all(self, remote_file: RemoteFile) -> list[ObjectInfo | FailedError]:
        """Return the metadata or the failure of each source. Raises FailedError if no source has the file."""
        return self._retry(lambda: _stat_locations(remote_file, self.credentials), failure_kinds=_RETRIED_STAT_FAILURES)

    def list_folder(self, url: str) -> list[RemoteFile]:
        """Return all files below a folder URL."""
        self.progress.start("list", redact_url(url))
        folder = self.credentials.make_location(url, url)
        entries = self._retry(lambda: list(get_source(folder, self.credentials.resolve_secret).list(folder)))
        files = [RemoteFile(check_listed_name(entry.name, url), (entry.location,), entry.size) for entry in entries]
        if not files:
            raise NotFoundError(f"there are no files below {redact_url(url)}")
        return files

    def _retry(self, operation: Callable[[], T], failure_kinds: Sequence[str] = ()) -> T:
        try:
            with cancellation_scope(self.cancel_token.check_cancelled):
                return retry(operation, self.retry_timeout_s, self.cancel_token.check_cancelled, failure_kinds)
        except FailedError as error:
            raise add_hint(error) from error

    def _fetch(self, request: DownloadRequest) -> DownloadResult:
        self.progress.start("fetch", request.remote_file.name, request.remote_file.size)
        try:
            result = fetch(
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
            redact_url(request.remote_file.locations[0].url), request.target, result.verified_by or None, result
        )

    def download_and_unpack(self, requests: Sequence[DownloadRequest], folder: Path) -> list[DownloadResult]:
        """Unpack all archives into one folder, which appears only when it is complete."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} exists and is not an empty folder; choose another one with -o")
        folder = folder.absolute()
        staging_dir = folder.with_name(f".{folder.name}.packtrain-get")
        staged_requests = [replace(request, target=staging_dir / request.target.name) for request in requests]
        try:
            results = self._unpack_into(staged_requests, staging_dir / "unpacked")
            _move_into_place(staging_dir / "unpacked", folder)
        except BaseException:
            shutil.rmtree(staging_dir / "unpacked", ignore_errors=True)
            with contextlib.suppress(OSError):  # it is not empty if it holds a partial download to resume from
                staging_dir.rmdir()
            raise
        shutil.rmtree(staging_dir)
        return [replace(result, path=folder) for result in results]

    def _unpack_into(self, requests: Sequence[DownloadRequest], staging_dir: Path) -> list[DownloadResult]:
        """Unpack while downloading; if an archive was damaged or replaced meanwhile, download it to a file first."""
        try:
            return _unpack_all(requests, staging_dir, self._unpack_while_downloading, self._download_then_unpack)
        except FailedError as error:
            if not should_refetch(error):
                raise add_hint(error) from error
            return _unpack_all(requests, staging_dir, self._download_then_unpack)

    def _unpack_while_downloading(self, request: DownloadRequest, folder: Path) -> DownloadResult | None:
        """Unpack an archive without storing it on disk. Return None if its format does not allow that."""
        remote_file, started_at = request.remote_file, time.monotonic()
        if remote_file.name.lower().endswith(_NON_STREAMABLE_SUFFIXES) or (
            request.checksums and not request.checksums.can_stream
        ):
            return None
        self.progress.start("unpack", remote_file.name, remote_file.size)
        with self._open_ordered_download(request) as download:
            stream = stream_from_reader(download)
            if not can_stream(stream.peek(SNIFF_BYTES)):
                return None
            unpack_result = unpack_stream(
                stream,
                remote_file.name,
                folder,
                nested=self.nested,
                max_bytes=None,
                check_cancelled=self.cancel_token.check_cancelled,
                on_progress=lambda done, total: None,
            )
        result = download.make_result(time.monotonic() - started_at)
        url = redact_url(remote_file.locations[0].url)
        return DownloadResult(url, folder, result.verified_by or None, result, unpack_result)

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
        """Download an archive to a file, then unpack it: its format needs random access, or a stream was damaged."""
        result = self._download_archive(request)
        self.progress.start("unpack", request.remote_file.name)
        unpack_result = unpack(
            request.target,
            folder,
            nested=self.nested,
            max_bytes=None,
            check_cancelled=self.cancel_token.check_cancelled,
            on_progress=self.progress.on_progress,
        )
        request.target.unlink()
        return replace(result, unpack_result=unpack_result)

    def _download_archive(self, request: DownloadRequest) -> DownloadResult:
        """Use the archive that a killed process left behind, if it is the right one."""
        try:
            return self.download(request, force=False)
        except UsageError:
            return self.download(request, force=True)

    def read_checksums(self, path_or_url: str, file_url: str) -> BlockChecksums:
        """Read a checksums file from a path or a URL."""
        if "://" not in path_or_url:
            return load_checksums(Path(path_or_url))
        with tempfile.TemporaryDirectory() as folder:
            # The name ends in .json, so a JSON document is not mistaken for an error page.
            name = filename_from_url(file_url) + CHECKSUMS_SUFFIX
            remote_file = RemoteFile(name, (self.credentials.make_location(path_or_url, file_url),))
            return load_checksums(self._fetch(DownloadRequest(remote_file, Path(folder, name))).path)


def load_checksums(path: Path) -> BlockChecksums:
    """Read a checksums file. Raises NotFoundError if it is not readable."""
    try:
        return read_checksums(path)
    except OSError as error:
        raise NotFoundError(f"cannot read the checksums file {path}: {error.strerror}") from None


def _existing_file_result(request: DownloadRequest, verified_by: str | None) -> DownloadResult:
    return DownloadResult(redact_url(request.remote_file.locations[0].url), request.target, verified_by)


def _existing_file_error(path: Path, reason: str) -> UsageError:
    return UsageError(f"{path} exists, but {reason}; --force replaces it")


def _unpack_all(
    requests: Sequence[DownloadRequest],
    staging_dir: Path,
    *methods: Callable[[DownloadRequest, Path], DownloadResult | None],
) -> list[DownloadResult]:
    """Unpack each archive with the first method that supports it."""
    shutil.rmtree(staging_dir, ignore_errors=True)
    staging_dir.mkdir(parents=True)
    return [next(result for method in methods if (result := method(request, staging_dir))) for request in requests]


def _move_into_place(staging_dir: Path, folder: Path) -> None:
    """Rename the staging folder, or move its contents if `folder` exists (it may be a shell's working directory)."""
    if not folder.exists():
        staging_dir.rename(folder)
        return
    for path in staging_dir.iterdir():
        path.rename(folder / path.name)


def _stat_locations(remote_file: RemoteFile, credentials: CredentialOptions) -> list[ObjectInfo | FailedError]:
    results = [_try_stat(location, credentials) for location in remote_file.locations]
    errors = [result for result in results if isinstance(result, FailedError)]
    if len(errors) == len(results):
        raise errors[0]
    return results


def _try_stat(location: Location, credentials: CredentialOptions) -> ObjectInfo | FailedError:
    try:
        return get_source(location, credentials.resolve_secret).stat(location)
    except FailedError as error:
        return error


def refers_to_folder(url: str) -> bool:
    """Return True if the URL names a folder, i.e. all files below it."""
    return url.endswith("/") or (url_scheme(url) in FEDERATION_SCHEMES and is_folder_url(url))


def reject_pack_query(url: str, advice: str) -> None:
    """Reject `?pack=`, which only Pelican's own client implements."""
    if url_scheme(url) in FEDERATION_SCHEMES and "pack" in parse_qs(url.partition("?")[2], keep_blank_values=True):
        raise UsageError(f"{redact_url(url)}: remove `pack=` from the URL; {advice}")


def choose_target_paths(names: Sequence[str], output: str | None, *, is_folder: bool) -> list[Path]:
    """Return the path of each file. `output` is a folder if it exists as one or ends in /, else the file itself."""
    if output is None:
        paths = [Path(name) for name in names]
    elif is_folder or output.endswith("/") or Path(output).is_dir():
        paths = [Path(output, name) for name in names]
    elif len(names) > 1:
        raise UsageError(f"several files need a folder: -o {output}/")
    else:
        paths = [Path(output)]
    duplicate = next((path for path in paths if paths.count(path) > 1), None)
    if duplicate is not None:
        raise UsageError(f"two files would both be {duplicate}; get them one by one, with -o")
    return paths


def make_transfer_totals(fetch_result: FetchResult) -> TransferTotals:
    """Return the totals of a fetch for display."""
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
    """Return the locations of a file and its mirrors."""
    return tuple(credentials.make_location(replica, url) for replica in (url, *mirrors))
