"""The destination of one job, with the operations that publication needs, each retried until the retry timeout."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TypeVar

from packtrain.errors import FailedError, TransferError
from packtrain.plan import Digest, Job, Location, ManifestEntry, Output, RemoteFile, RunFolder
from packtrain.plan.output_manifest import staging_folder
from packtrain.plan.run_folder import PACKTRAIN_FOLDER
from packtrain.transfer.api import ListedObject, SecretResolver
from packtrain.transfer.fetch import fetch
from packtrain.transfer.registry import get_sink, get_source
from packtrain.transfer.retry import retry
from packtrain.transfer.tasks.cancellation import CancelCheck, cancellation_scope
from packtrain.transfer.upload import upload_file
from packtrain.transfer.urls import is_federated, join_url, path_from_file_url, url_scheme

T = TypeVar("T")

_logger = logging.getLogger("packtrain.publication")


@dataclass(frozen=True)
class JobOutputs:
    """What is needed to publish the outputs of a job."""

    run: str
    job: Job
    folder: RunFolder
    resolve_secret: SecretResolver
    check_cancelled: CancelCheck
    max_parallel_copies: int = 1

    @property
    def output(self) -> Output:
        assert self.job.output is not None
        return self.job.output

    @property
    def retry_timeout_s(self) -> float:
        timeout_s = self.output.retry_timeout_s
        return self.job.retry_timeout_s if timeout_s is None else timeout_s


class Destination:
    """The destination of a job, a prefix at which attempts store their outputs."""

    def __init__(self, outputs: JobOutputs, location: Location | None = None) -> None:
        self._outputs, self._root = outputs, location or outputs.output.location
        self._sink = get_sink(self._root, outputs.resolve_secret)
        self._source = get_source(self._root, outputs.resolve_secret)

    def location_of(self, name: str) -> Location:
        """Return the address of a name below the destination."""
        return replace(self._root, url=join_url(self._root.url, name))

    def read_text(self, name: str) -> str:
        """Return a small object. Raises TransferError."""

        def read() -> str:
            stream = self._source.open(self._at_origin(name))
            try:
                data = b"".join(iter(lambda: stream.read(1 << 20), b""))
            finally:
                stream.close()
            return data.decode("utf-8")

        return self._retry(read)

    def list_names(self, folder: str = "") -> dict[str, int | None]:
        """Return the sizes of all objects below a folder, by their names in it."""
        return {entry.name: entry.size for entry in self._list(folder)}

    def for_each(self, action: Callable[[T], None], items: Sequence[T]) -> None:
        """Call `action` for all items, several at once, and raise the first error."""
        if min(len(items), self._outputs.max_parallel_copies) <= 1:
            for item in items:
                action(item)
            return
        with ThreadPoolExecutor(self._outputs.max_parallel_copies, thread_name_prefix="publish") as pool:
            futures = [pool.submit(action, item) for item in items]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                for future in futures:
                    future.cancel()
                raise

    def copy(self, source: str, target: str, entry: ManifestEntry | None = None, may_move: bool = False) -> None:
        """Copy an object to another name. What an entry describes is compared with it. Raises TransferError."""
        digest = Digest("sha256", entry.sha256) if entry else None

        def copy_on_server() -> bool | None:
            try:
                locations = self.location_of(source), self.location_of(target)
                return self._sink.copy(*locations, digest=digest, may_move=may_move)
            except TransferError as error:
                if error.kind == "unsupported":
                    return None
                raise

        is_equal = self._retry(copy_on_server)
        if is_equal is None:
            self._copy_through_this_machine(source, target, digest)
        elif entry is not None and not is_equal:
            self.verify(target, entry)

    def exists(self, name: str) -> bool:
        """Return whether there is an object with this name."""
        try:
            self._retry(lambda: self._source.stat(self._at_origin(name)))
            return True
        except TransferError as error:
            if error.kind != "object_missing":
                raise
            return False

    def verify(self, name: str, entry: ManifestEntry) -> None:
        """Compare an object with an entry. Raises TransferError: object_missing, truncated, digest_mismatch."""
        info = self._retry(lambda: self._source.stat(self._at_origin(name)))
        if info.size not in (None, entry.bytes):
            url = self.location_of(name).url
            raise TransferError("truncated", f"{url} has {info.size} bytes instead of {entry.bytes}", url)
        if info.digest != Digest("sha256", entry.sha256):
            self._with_copy_on_this_machine(name, entry.bytes, Digest("sha256", entry.sha256), lambda path: None)

    def delete(self, name: str) -> None:
        """Delete an object, if it exists."""
        self._retry(lambda: self._sink.delete(self.location_of(name)))

    def remove_staging(self) -> None:
        """Remove what all attempts of the job stored. Errors are logged: the results are published already."""
        folder = staging_folder(self._outputs.run, self._outputs.job.id)
        try:
            if url_scheme(self._root.url) == "file":
                _remove_folder(Path(path_from_file_url(self._root.url)), folder)
            else:
                self.for_each(lambda entry: self._sink.delete(entry.location), self._list(folder))
        except (FailedError, OSError) as error:
            _logger.warning("%s could not be removed: %s", self.location_of(folder).url, error)

    def _list(self, folder: str) -> list[ListedObject]:
        return self._retry(lambda: list(self._sink.list(self.location_of(folder))))

    def _copy_through_this_machine(self, source: str, target: str, digest: Digest | None) -> None:
        def upload(path: Path) -> None:
            upload_file(
                path,
                replace(self._outputs.output, location=self._root),
                target,
                self._outputs.resolve_secret,
                retry_timeout_s=self._outputs.retry_timeout_s,
                check_cancelled=self._outputs.check_cancelled,
            )

        self._with_copy_on_this_machine(source, None, digest, upload)

    def _with_copy_on_this_machine(
        self, name: str, size: int | None, digest: Digest | None, use: Callable[[Path], None]
    ) -> None:
        """Download and verify an object, pass its path to a function, and remove the download."""
        import tempfile

        outputs = self._outputs
        with tempfile.TemporaryDirectory(dir=outputs.folder.job_folder(outputs.job.id), prefix=".publish-") as folder:
            path = Path(folder) / "object"
            fetch(
                RemoteFile(PurePosixPath(name).name, (self._at_origin(name),), size, digest),
                path,
                outputs.resolve_secret,
                retry_timeout_s=outputs.retry_timeout_s,
                check_cancelled=outputs.check_cancelled,
                on_progress=lambda done, total: None,
            )
            use(path)

    def _at_origin(self, name: str) -> Location:
        """Return the address to read an object from; caches of a federation need not store what is read once."""
        location = self.location_of(name)
        if not is_federated(location.url):
            return location
        return replace(location, url=f"{location.url}{'&' if '?' in location.url else '?'}directread")

    def _retry(self, operation: Callable[[], T]) -> T:
        def run() -> T:
            with cancellation_scope(self._outputs.check_cancelled):
                return operation()

        timeout_s, check = self._outputs.retry_timeout_s, self._outputs.check_cancelled
        return retry(run, timeout_s, check, except_kinds=("object_missing", "digest_mismatch", "disk_full"))


def _remove_folder(root: Path, folder: str) -> None:
    """Remove a folder below `root`, and the folders between them that are empty then."""
    shutil.rmtree(root / folder, ignore_errors=True)
    for parent in (root / folder).parents:
        if parent == root:
            return
        with suppress(OSError):  # another job's folder is in it
            parent.rmdir()


def is_reserved(name: str) -> bool:
    """Return whether a name below a destination is packtrain's own: checkpoints, and outputs that are not accepted."""
    return name.startswith(f"{PACKTRAIN_FOLDER}/")
