"""Install the packages of an environment into one folder, several at a time, each as soon as it is there."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from packtrain.errors import FailedError
from packtrain.pixi.conda_package import install_conda_package
from packtrain.pixi.package_extractor import Installation
from packtrain.pixi.prefix_folder import PrefixFolder
from packtrain.pixi.wheel import install_wheel
from packtrain.plan import PixiLock, PixiPackage
from packtrain.transfer.tasks.cancellation import CancelCheck
from packtrain.transfer.tasks.parallel import run_parallel

MAX_PACKAGES_AT_ONCE = 8
_MIN_PACKAGES_AT_ONCE = 4  # some wait for the network while others are unpacked
_DAMAGE_KINDS = frozenset({"archive_broken", "archive_unsafe", "truncated"})
_UNKNOWN_SIZE = 1 << 62  # a wheel without a size may be the largest of all

OpenPackage = Callable[[PixiPackage], AbstractContextManager[Path]]
"""Provides the verified file of a package while the context lasts."""


@dataclass(frozen=True)
class InstallResult:
    """What was installed."""

    packages: int
    files: int
    bytes: int


def install_packages(
    lock: PixiLock,
    folder: Path,
    prefix: str,
    open_package: OpenPackage,
    *,
    max_bytes: int,
    name: str,
    check_cancelled: CancelCheck,
) -> InstallResult:
    """Install all packages into a new folder, which the caller then renames to `prefix`.

    Args:
        lock: The packages, in the order of installation: a later one has a file that several contain.
        folder: The folder to create.
        prefix: The path that the folder will have.
        open_package: Provides the packages; called from several threads.
        max_bytes: Limit for the installed size.
        name: The name of the environment, for messages.
        check_cancelled: Called for each member and chunk; raises to cancel.

    Raises:
        PrefixTooLongError: The prefix is longer than a placeholder.
        FailedError: package_broken, archive_too_large, disk_full, environment_unsupported, or one of `open_package`.
    """
    # The largest first, so that none is left over at the end.
    ranked = sorted(enumerate(lock.packages), key=lambda item: -(item[1].size or _UNKNOWN_SIZE))
    pending: queue.SimpleQueue[tuple[int, PixiPackage]] = queue.SimpleQueue()
    for item in ranked:
        pending.put(item)
    has_failed = threading.Event()
    with PrefixFolder(folder, max_bytes, name) as prefix_folder:
        installation = Installation(
            prefix_folder, prefix, lock.python, lock.site_packages, _make_check(check_cancelled, has_failed)
        )

        def work() -> None:
            while not has_failed.is_set():
                try:
                    rank, package = pending.get_nowait()
                except queue.Empty:
                    return
                check_cancelled()
                with open_package(package) as path:
                    install_package(path, installation, package, rank)

        run_parallel([work] * _n_threads(ranked), has_failed.set)
        _make_conda_meta(folder)
        return InstallResult(len(lock.packages), prefix_folder.n_files, prefix_folder.n_bytes)


def install_package(path: Path, installation: Installation, package: PixiPackage, rank: int) -> None:
    """Install one package. Raises PrefixTooLongError or FailedError."""
    install = install_wheel if package.is_wheel else install_conda_package
    try:
        install(path, installation, package, rank)
    except FailedError as error:
        if error.kind not in _DAMAGE_KINDS:
            raise
        raise FailedError("package_broken", error.detail) from error
    except ValueError as error:
        raise FailedError("package_broken", f"{package.file_name} cannot be installed: {error}") from error


def _n_threads(packages: Sequence[object]) -> int:
    wanted = max(_MIN_PACKAGES_AT_ONCE, len(os.sched_getaffinity(0)))
    return min(wanted, MAX_PACKAGES_AT_ONCE, len(packages))


def _make_check(check_cancelled: CancelCheck, has_failed: threading.Event) -> CancelCheck:
    def check() -> None:
        check_cancelled()
        if has_failed.is_set():
            raise FailedError("cancelled", "another package could not be installed")

    return check


def _make_conda_meta(folder: Path) -> None:
    """Create the file by which programs recognize the prefix of a conda environment."""
    history = folder / "conda-meta" / "history"
    history.parent.mkdir(exist_ok=True)
    history.touch()
