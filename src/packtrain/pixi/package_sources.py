"""Where the packages of an environment come from, in this order: the download cache, the user's mirrors, the run's
package store, and the address in the lock file. Each is verified by the sha256 in the lock file."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.errors import TransferError
from packtrain.plan import Digest, Location, PixiEnvironment, PixiPackage, RemoteFile
from packtrain.transfer.api import SecretResolver
from packtrain.transfer.fetch import FetchResult, fetch
from packtrain.transfer.progress import ProgressCallback
from packtrain.transfer.tasks.cancellation import CancelCheck
from packtrain.transfer.urls import join_url

if TYPE_CHECKING:
    from packtrain.transfer.cache import DownloadCache

_MAX_CHANNEL_DOWNLOADS = 4  # at once from the addresses in the lock file: public servers have other users
_POLL_INTERVAL_S = 0.2
_MIRROR_RETRY_TIMEOUT_S = 30.0  # before the next source is used
_RETRIED_KINDS = frozenset(
    {"service_unavailable", "network_unreachable"}
)  # a mirror without a package is not asked again


@dataclass
class PackageDownloads:
    """What was fetched so far, for the report of the stage."""

    bytes: int = 0
    files: int = 0
    retries: int = 0
    source: str = ""


class PackageFetcher:
    """Fetches the packages of one environment.

    Args:
        pixi: The environment.
        folder: Where packages are downloaded to, unless the cache holds them.
        cache: The download cache, if there is one.
        resolve_secret: Returns the values of secrets.
        retry_timeout_s: How long to retry the last source before a failure is final.
        check_cancelled: Called several times a second; raises to cancel.
        on_progress: Receives the bytes fetched so far; the total is None.
    """

    def __init__(
        self,
        pixi: PixiEnvironment,
        folder: Path,
        cache: DownloadCache | None,
        resolve_secret: SecretResolver,
        *,
        retry_timeout_s: float,
        check_cancelled: CancelCheck,
        on_progress: ProgressCallback,
    ) -> None:
        self._pixi, self._folder, self._cache, self._resolve_secret = pixi, folder, cache, resolve_secret
        self._retry_timeout_s, self._check_cancelled = retry_timeout_s, check_cancelled
        self._on_progress = on_progress
        self._channel_slots = threading.Semaphore(_MAX_CHANNEL_DOWNLOADS)
        self._lock = threading.Lock()
        self._bytes_in_progress: dict[str, int] = {}  # by sha256
        self.downloads = PackageDownloads()

    @contextlib.contextmanager
    def open_package(self, package: PixiPackage) -> Iterator[Path]:
        """Provide the verified file of a package. Raises FailedError: object_missing, digest_mismatch, …."""
        with contextlib.ExitStack() as stack:
            path, result = self._open(stack, package)
            self._count(package, result)
            yield path
        if path.parent == self._folder:
            path.unlink()

    def _open(self, stack: contextlib.ExitStack, package: PixiPackage) -> tuple[Path, FetchResult]:
        *others, last = package_locations(self._pixi, package)
        for location in others:
            with contextlib.suppress(TransferError):
                return self._open_mirror(stack, package, location)
        if last.url != package.url:
            return self._open_location(stack, package, last, self._retry_timeout_s)
        while not self._channel_slots.acquire(timeout=_POLL_INTERVAL_S):
            self._check_cancelled()
        try:
            return self._open_location(stack, package, last, self._retry_timeout_s)
        finally:
            self._channel_slots.release()

    def _open_mirror(
        self, stack: contextlib.ExitStack, package: PixiPackage, location: Location
    ) -> tuple[Path, FetchResult]:
        try:
            return self._open_location(stack, package, location, 0.0)
        except TransferError as error:
            if error.kind not in _RETRIED_KINDS:
                raise
        return self._open_location(stack, package, location, min(self._retry_timeout_s, _MIRROR_RETRY_TIMEOUT_S))

    def _open_location(
        self, stack: contextlib.ExitStack, package: PixiPackage, location: Location, retry_timeout_s: float
    ) -> tuple[Path, FetchResult]:
        remote_file = RemoteFile(package.file_name, (location,), package.size, Digest("sha256", package.sha256))
        target = self._folder / f"{package.sha256}-{package.file_name}"

        def report(done: int, total: int | None) -> None:
            with self._lock:
                self._bytes_in_progress[package.sha256] = done
                total_done = self.downloads.bytes + sum(self._bytes_in_progress.values())
            self._on_progress(total_done, None)

        if self._cache is None:
            result = fetch(
                remote_file,
                target,
                self._resolve_secret,
                retry_timeout_s=retry_timeout_s,
                check_cancelled=self._check_cancelled,
                on_progress=report,
            )
            return target, result
        return stack.enter_context(
            self._cache.open_object(
                remote_file,
                target,
                self._resolve_secret,
                retry_timeout_s=retry_timeout_s,
                check_cancelled=self._check_cancelled,
                on_progress=report,
            )
        )

    def _count(self, package: PixiPackage, result: FetchResult) -> None:
        with self._lock:
            self._bytes_in_progress.pop(package.sha256, None)
            self.downloads.bytes += result.bytes
            self.downloads.files += 1
            self.downloads.retries += result.retries
            self.downloads.source = result.source


def package_locations(pixi: PixiEnvironment, package: PixiPackage) -> list[Location]:
    """Return where a package is, in the order in which the places are tried."""
    if not package.url:
        return [replace(pixi.folder, url=join_url(pixi.folder.url, package.file_name))]
    mirrors = [
        replace(mirror.location, url=mirror.location.url + package.url[len(mirror.prefix) :])
        for mirror in pixi.mirrors
        if package.url.startswith(mirror.prefix)
    ]
    store = [replace(pixi.store, url=join_url(pixi.store.url, package.sha256))] if pixi.store else []
    return [*mirrors, *store, Location(package.url)]
