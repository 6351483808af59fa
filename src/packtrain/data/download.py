"""Download files for a user: choose their paths, keep files that are there already, fetch, verify and unpack.

`download` does all of it. The command `packtrain get` also uses `Downloader`, to show what would be downloaded.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from packtrain.data.checksums import load_checksums
from packtrain.data.credentials import CredentialOptions
from packtrain.errors import FailedError, NotFoundError, UsageError
from packtrain.plan import Digest, RemoteFile
from packtrain.transfer.api import ObjectInfo
from packtrain.transfer.archive.formats import format_from_name
from packtrain.transfer.archive.unpack import UnpackResult, unpack
from packtrain.transfer.fetch import FetchResult, fetch
from packtrain.transfer.integrity.block_checksums import CHECKSUMS_SUFFIX, BlockChecksums, find_bad_blocks
from packtrain.transfer.integrity.digests import Digests, check_digest_computable
from packtrain.transfer.progress import TransferSnapshot
from packtrain.transfer.registry import get_source
from packtrain.transfer.retry import retry
from packtrain.transfer.streamed_unpack import unpack_while_downloading
from packtrain.transfer.tasks.cancellation import CancelCheck, cancellation_scope
from packtrain.transfer.urls import (
    check_listed_name,
    filename_from_url,
    redact_url,
    refers_to_folder,
    reject_pack_query,
)

T = TypeVar("T")
DEFAULT_RETRY_TIMEOUT_S = 10.0
_READ_BYTES = 1 << 20
_RETRIED_STAT_FAILURES = ("service_unavailable",)  # a stat reports a dead host or a missing file at once


class DownloadProgress(Protocol):
    """Shows one transfer after another."""

    def start(self, verb: str, name: str, total_bytes: int | None = None, /) -> None:
        """Begin to show another transfer; the verb is check, fetch, list or unpack."""
        ...

    def on_progress(self, done_bytes: int, total_bytes: int | None, /) -> None:
        """Show a byte count."""
        ...

    def on_snapshot(self, snapshot: TransferSnapshot, /) -> None:
        """Show a byte count and the speed of each source."""
        ...


class NoProgress:
    """Shows nothing."""

    def start(self, verb: str, name: str, total_bytes: int | None = None, /) -> None: ...

    def on_progress(self, done_bytes: int, total_bytes: int | None, /) -> None: ...

    def on_snapshot(self, snapshot: TransferSnapshot, /) -> None: ...


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
        """Return the result as JSON data."""
        data: dict[str, Any] = {
            "url": self.url,
            "path": str(self.path),
            "already_exists": self.fetch_result is None,
            "verified_by": self.verified_by,
        }
        if self.fetch_result is not None:
            stats = {key: value for key, value in vars(self.fetch_result).items() if key not in ("source", *data)}
            data.update(stats, sha256=self.fetch_result.sha256 or None)
        if self.unpack_result is not None:
            data["unpacked"] = vars(self.unpack_result)
        return data


def download(
    urls: Sequence[str],
    target: str | None,
    credentials: CredentialOptions,
    *,
    mirrors: Sequence[str] = (),
    digest: Digest | None = None,
    checksums: str | None = None,
    unpack: bool = False,
    nested: bool = False,
    force: bool = False,
    retry_timeout_s: float = DEFAULT_RETRY_TIMEOUT_S,
    check_cancelled: CancelCheck = lambda: None,
    progress: DownloadProgress | None = None,
) -> list[DownloadResult]:
    """Download files, or verify those that exist already.

    Args:
        urls: The files; a URL that ends in / means all files below it.
        target: The file to write, or a folder if it exists as one or ends in /. None: the current folder.
        credentials: Makes the locations.
        mirrors: Other URLs of the same file.
        digest: The digest that the file must have.
        checksums: Path or URL of a checksums file, to download only bad blocks again.
        unpack: Unpack all archives into the folder `target`, which must be new or empty.
        nested: Unpack tars inside an archive, each into a folder of its own.
        force: Download files even if they exist, and replace them.
        retry_timeout_s: How long to retry when all sources fail.
        check_cancelled: Called several times a second; raises to cancel.
        progress: Shows the transfers.

    Raises:
        UsageError: The arguments contradict each other, or a different file exists.
        FailedError: A file could not be downloaded, verified or unpacked.
    """
    downloader = Downloader(credentials, retry_timeout_s, check_cancelled, progress or NoProgress(), nested)
    if unpack and target is None:
        raise UsageError("unpacking needs a folder to unpack into")
    if checksums is not None:
        check_single_file(urls)
    requests = downloader.make_requests(urls, target, mirrors, digest, to_folder=unpack)
    if checksums is not None:
        requests = [downloader.add_checksums(requests[0], checksums, urls[0])]
    if unpack:
        return downloader.download_and_unpack(requests, Path(target or ""))
    return [downloader.download(request, force=force) for request in requests]


def choose_digest(**values: str | None) -> Digest | None:
    """Return the digest among options named by their algorithm. Raises UsageError if there are several."""
    digests = [Digest(algorithm, value) for algorithm, value in values.items() if value]
    if len(digests) > 1:
        raise UsageError(f"give one digest, not both --{digests[0].algorithm} and --{digests[1].algorithm}")
    return digests[0] if digests else None


def check_single_file(urls: Sequence[str]) -> None:
    """Raise UsageError unless there is one URL, which names a file."""
    if len(urls) != 1 or refers_to_folder(urls[0]):
        raise UsageError("mirrors, checksums and digests apply to one file; download the files one by one")


@dataclass(frozen=True)
class Downloader:
    """Downloads files with the same credentials, retry timeout and progress display."""

    credentials: CredentialOptions
    retry_timeout_s: float
    check_cancelled: CancelCheck
    progress: DownloadProgress
    nested: bool = False  # unpack tars inside an archive, each into a folder of its own

    def make_requests(
        self,
        urls: Sequence[str],
        target: str | None,
        mirrors: Sequence[str] = (),
        digest: Digest | None = None,
        *,
        to_folder: bool = False,
    ) -> list[DownloadRequest]:
        """Return the files below each URL with their paths. Folders are listed; nothing else is transferred."""
        for url in urls:
            reject_pack_query(url, "to unpack an archive, give --unpack -o FOLDER")
        if mirrors or digest:
            check_single_file(urls)
        files = [
            file
            for url in urls
            for file in (
                self._list_folder(url) if refers_to_folder(url) else [self._make_remote_file(url, mirrors, digest)]
            )
        ]
        is_folder = to_folder or any(map(refers_to_folder, urls))
        targets = choose_target_paths([file.name for file in files], target, is_folder=is_folder)
        return [DownloadRequest(file, path) for file, path in zip(files, targets, strict=True)]

    def _make_remote_file(self, url: str, mirrors: Sequence[str], digest: Digest | None) -> RemoteFile:
        locations = tuple(self.credentials.make_location(replica, url) for replica in (url, *mirrors))
        return RemoteFile(filename_from_url(url), locations, digest=digest)

    def _list_folder(self, url: str) -> list[RemoteFile]:
        self.progress.start("list", redact_url(url))
        folder = self.credentials.make_location(url, url)
        entries = self._retry(lambda: list(get_source(folder, self.credentials.resolve_secret).list(folder)))
        files = [RemoteFile(check_listed_name(entry.name, url), (entry.location,), entry.size) for entry in entries]
        if not files:
            raise NotFoundError(f"there are no files below {redact_url(url)}")
        return files

    def add_checksums(self, request: DownloadRequest, path_or_url: str, file_url: str) -> DownloadRequest:
        """Return the request with the checksums file from a path or a URL."""
        checksums = self._read_checksums(path_or_url, file_url)
        return replace(request, remote_file=replace(request.remote_file, size=checksums.size), checksums=checksums)

    def _read_checksums(self, path_or_url: str, file_url: str) -> BlockChecksums:
        if "://" not in path_or_url:
            return load_checksums(Path(path_or_url))
        with tempfile.TemporaryDirectory() as folder:
            # The name ends in .json, so a JSON document is not mistaken for an error page.
            name = filename_from_url(file_url) + CHECKSUMS_SUFFIX
            remote_file = RemoteFile(name, (self.credentials.make_location(path_or_url, file_url),))
            return load_checksums(self._fetch(DownloadRequest(remote_file, Path(folder, name))).path)

    def query_sources(self, request: DownloadRequest) -> dict[str, Any]:
        """Return what each source says about a file, as JSON data. Raises FailedError if no source has it."""
        self.progress.start("query", request.remote_file.name)
        results = zip(request.remote_file.locations, self.stat_all(request.remote_file), strict=True)
        return {
            "path": str(request.target),
            "sources": [{"url": redact_url(location.url), **_stat_data(result)} for location, result in results],
        }

    def stat_all(self, remote_file: RemoteFile) -> list[ObjectInfo | FailedError]:
        """Return the metadata or the failure of each source. Raises FailedError if no source has the file."""
        return self._retry(lambda: self._stat_locations(remote_file), _RETRIED_STAT_FAILURES)

    def _stat_locations(self, remote_file: RemoteFile) -> list[ObjectInfo | FailedError]:
        results: list[ObjectInfo | FailedError] = []
        for location in remote_file.locations:
            try:
                results.append(get_source(location, self.credentials.resolve_secret).stat(location))
            except FailedError as error:
                results.append(error)
        errors = [result for result in results if isinstance(result, FailedError)]
        if len(errors) == len(results):
            raise errors[0]
        return results

    def _retry(self, operation: Callable[[], T], failure_kinds: Sequence[str] = ()) -> T:
        with cancellation_scope(self.check_cancelled):
            return retry(operation, self.retry_timeout_s, self.check_cancelled, failure_kinds)

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
            raise UsageError(f"{path} exists and is not a file; choose another path")
        self.progress.start("check", path.name)
        if checksums is not None:
            if path.stat().st_size != checksums.size or find_bad_blocks(path, checksums):
                raise _existing_file_error(path, "it does not match the checksums file")
            return _make_result(request, "checksums")
        info = ObjectInfo() if request.remote_file.digest else self._stat_any(request.remote_file)
        return _make_result(request, self._verify_file(path, request.remote_file.digest or info.digest, info.size))

    def _stat_any(self, remote_file: RemoteFile) -> ObjectInfo:
        """Return the metadata from the first source that responds."""
        return next(info for info in self.stat_all(remote_file) if isinstance(info, ObjectInfo))

    def _verify_file(self, path: Path, digest: Digest | None, size: int | None) -> str | None:
        if digest is not None:
            if self._compute_digest(path, digest) != digest.value.lower():
                raise _existing_file_error(path, f"its {digest.algorithm} is not {digest.value}")
            return digest.algorithm
        if size != path.stat().st_size:
            raise _existing_file_error(path, f"it has {path.stat().st_size} bytes, but the source has {size}")
        return None

    def _compute_digest(self, path: Path, digest: Digest) -> str:
        size, done = path.stat().st_size, 0
        check_digest_computable(path.name, digest)
        digests = Digests(digest)
        with open(path, "rb") as file:
            while block := file.read(_READ_BYTES):
                self.check_cancelled()
                digests.update(block)
                done += len(block)
                self.progress.on_progress(done, size)
        return digests.hexdigest(digest.algorithm)

    def _fetch(self, request: DownloadRequest) -> DownloadResult:
        self.progress.start("fetch", request.remote_file.name, request.remote_file.size)
        result = fetch(
            request.remote_file,
            request.target,
            self.credentials.resolve_secret,
            retry_timeout_s=self.retry_timeout_s,
            check_cancelled=self.check_cancelled,
            on_progress=lambda done, total: None,
            checksums=request.checksums,
            on_snapshot=self.progress.on_snapshot,
        )
        return _make_result(request, result.verified_by or None, result)

    def download_and_unpack(self, requests: Sequence[DownloadRequest], folder: Path) -> list[DownloadResult]:
        """Unpack all archives into one folder, which appears only when it is complete."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} exists and is not an empty folder; choose another one")
        folder = folder.absolute()
        staging = folder.with_name(f".{folder.name}.packtrain-get")
        content = staging / "unpacked"
        shutil.rmtree(content, ignore_errors=True)
        content.mkdir(parents=True)
        try:
            results = [
                self._unpack_one(replace(request, target=staging / request.target.name), content, staging / "stream")
                for request in requests
            ]
            _move_into_place(content, folder)
        except BaseException:
            shutil.rmtree(content, ignore_errors=True)
            with contextlib.suppress(OSError):  # it is not empty if it holds a partial download to resume from
                staging.rmdir()
            raise
        shutil.rmtree(staging)
        return [replace(result, path=folder) for result in results]

    def _unpack_one(self, request: DownloadRequest, folder: Path, staging: Path) -> DownloadResult:
        """Unpack an archive while it downloads, or download it first if its format or damage requires that."""
        remote_file, archive_format = request.remote_file, format_from_name(request.remote_file.name)
        if archive_format is None or archive_format.can_stream:
            self.progress.start("unpack", remote_file.name, remote_file.size)
            streamed = unpack_while_downloading(
                remote_file,
                folder,
                staging,
                self.credentials.resolve_secret,
                nested=self.nested,
                max_bytes=None,
                retry_timeout_s=self.retry_timeout_s,
                check_cancelled=self.check_cancelled,
                on_progress=self.progress.on_progress,
                on_damage=lambda error: None,
                checksums=request.checksums,
            )
            if streamed is not None:
                return _make_result(request, streamed[0].verified_by or None, *streamed)
        result = self._download_archive(request)
        self.progress.start("unpack", remote_file.name)
        unpack_result = unpack(
            request.target,
            folder,
            nested=self.nested,
            max_bytes=None,
            check_cancelled=self.check_cancelled,
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


def choose_target_paths(names: Sequence[str], target: str | None, *, is_folder: bool) -> list[Path]:
    """Return the path of each file. `target` is a folder if it exists as one or ends in /, else the file itself."""
    if target is None:
        paths = [Path(name) for name in names]
    elif is_folder or target.endswith("/") or Path(target).is_dir():
        paths = [Path(target, name) for name in names]
    elif len(names) > 1:
        raise UsageError(f"several files need a folder: write it as {target}/")
    else:
        paths = [Path(target)]
    duplicate = next((path for path in paths if paths.count(path) > 1), None)
    if duplicate is not None:
        raise UsageError(f"two files would both be {duplicate}; download them one by one, to different paths")
    return paths


def _make_result(
    request: DownloadRequest,
    verified_by: str | None,
    fetch_result: FetchResult | None = None,
    unpack_result: UnpackResult | None = None,
) -> DownloadResult:
    url = redact_url(request.remote_file.locations[0].url)
    return DownloadResult(url, request.target, verified_by, fetch_result, unpack_result)


def _stat_data(stat_result: ObjectInfo | FailedError) -> dict[str, Any]:
    if isinstance(stat_result, FailedError):
        return {"error": str(stat_result)}
    return {"bytes": stat_result.size, "digest": stat_result.digest and vars(stat_result.digest)}


def _existing_file_error(path: Path, reason: str) -> UsageError:
    return UsageError(f"{path} exists, but {reason}; force (--force) replaces it")


def _move_into_place(content: Path, folder: Path) -> None:
    """Rename the folder, or move its contents if `folder` exists (it may be a shell's working directory)."""
    if not folder.exists():
        content.rename(folder)
        return
    for path in content.iterdir():
        path.rename(folder / path.name)
