"""Fill the package store of a Pixi environment: jobs then fetch from it, and not from the public channel."""

from __future__ import annotations

import logging
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from packtrain.errors import FailedError
from packtrain.pixi.package_sources import package_locations
from packtrain.plan import Digest, Location, Output, PixiEnvironment, PixiLock, PixiPackage, RemoteFile
from packtrain.submission.progress import Progress
from packtrain.transfer.api import SecretResolver
from packtrain.transfer.fetch import fetch
from packtrain.transfer.registry import get_source
from packtrain.transfer.upload import upload_file

_RETRY_TIMEOUT_S = 60.0
_MAX_TRANSFERS = 4  # at once
_logger = logging.getLogger(__name__)


def fill_store(pixi: PixiEnvironment, lock: PixiLock, resolve_secret: SecretResolver, progress: Progress) -> int:
    """Upload the packages that the environment's store does not have, and return how many these were.

    Args:
        pixi: The environment. Without a store nothing happens.
        lock: Its packages.
        resolve_secret: Returns the values of secrets.
        progress: Receives what is done.

    Raises:
        FailedError: A package cannot be fetched or uploaded.
    """
    if pixi.store is None:
        return 0
    present = _list_store(pixi.store, resolve_secret)
    missing = {package.sha256: package for package in lock.packages if package.url and package.sha256 not in present}
    if missing:
        _logger.info("%d of %d packages are not in %s", len(missing), len(lock.packages), pixi.store.url)
        with (
            progress.storing_packages(len(missing)),
            tempfile.TemporaryDirectory(prefix="packtrain-packages-") as folder,
            ThreadPoolExecutor(_MAX_TRANSFERS) as executor,
        ):
            list(executor.map(partial(_store_package, pixi, Path(folder), resolve_secret), missing.values()))
    return len(missing)


def _list_store(store: Location, resolve_secret: SecretResolver) -> set[str]:
    """Return the names in the store; a store that does not exist yet has none."""
    try:
        return {entry.name for entry in get_source(store, resolve_secret).list(store)}
    except FailedError as error:
        if error.kind != "object_missing":
            raise
        return set()


def _store_package(pixi: PixiEnvironment, folder: Path, resolve_secret: SecretResolver, package: PixiPackage) -> None:
    assert pixi.store is not None
    locations = tuple(package_locations(replace(pixi, store=None), package))
    remote_file = RemoteFile(package.file_name, locations, package.size, Digest("sha256", package.sha256))
    path = folder / package.sha256
    fetch(
        remote_file,
        path,
        resolve_secret,
        retry_timeout_s=_RETRY_TIMEOUT_S,
        check_cancelled=lambda: None,
        on_progress=lambda done, total: None,
    )
    upload_file(path, Output(pixi.store), package.sha256, resolve_secret, retry_timeout_s=_RETRY_TIMEOUT_S)
    path.unlink()
