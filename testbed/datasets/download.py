"""Brings a data set into a folder in its published form, and does nothing where it stands there already.

It comes from the published addresses; from a mirror of those files (an address that ends in /); or out of an archive
that packs the same images in another way. What others packed is judged by what it holds.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from packtrain.plan import Item, Ref
from packtrain.transfer.digests import sha256_of
from testbed.datasets import catalog, cifar10, mnist
from testbed.datasets.archives import reading

Get = Callable[[Item, Path], None]
"""Brings an item to a path, complete and verified."""

_ASIDE = ".packtrain-data"  # in the folder: what is fetched on the way; an interrupted fetch goes on there


@dataclass(frozen=True)
class Obtaining:
    """The manner in which data sets are brought. `other` is an address that was named instead of the published ones."""

    get: Get
    other: str | None = None
    told: Callable[[str], None] = lambda text: None

    def cifar10(self, folder: Path) -> list[Path]:
        target = folder / catalog.CIFAR10.name
        if target.exists():
            self._look_at_cifar10(target)
        elif self._as_published:
            self.get(catalog.CIFAR10.item(self.other), target)
        else:
            with self._fetched(folder) as archive:
                self._repack_cifar10(archive).replace(target)
        return [target]

    def mnist(self, folder: Path) -> list[Path]:
        targets = [folder / one.name for one in catalog.MNIST]
        if all(target.exists() for target in targets):
            for target in targets:
                mnist.check(target)
        elif self._as_published:
            for one, target in zip(catalog.MNIST, targets, strict=True):
                self.get(one.item(self.other), target)
        else:
            with self._fetched(folder) as archive:
                for made in mnist.repack(archive, archive.parent):
                    made.replace(folder / made.name)
        return targets

    @property
    def _as_published(self) -> bool:
        return self.other is None or self.other.endswith("/")

    @contextmanager
    def _fetched(self, folder: Path) -> Iterator[Path]:
        """The archive at `other`, in a folder that is gone afterwards unless the fetch failed."""
        assert self.other is not None
        aside = folder / _ASIDE
        aside.mkdir(parents=True, exist_ok=True)
        name = PurePosixPath(unquote(urlsplit(self.other).path)).name
        self.get(Item(name, (Ref(self.other),)), aside / name)
        try:
            yield aside / name
        finally:
            shutil.rmtree(aside)

    def _repack_cifar10(self, archive: Path) -> Path:
        if not _is_package(archive):
            self._look_at_cifar10(archive)
            return archive
        part = archive.with_name(f"{catalog.CIFAR10.name}.part")
        cifar10.write(part, cifar10.read_package(archive, self.told))
        self._look_at_cifar10(part)
        return part

    def _look_at_cifar10(self, archive: Path) -> None:
        """The published bytes, else the published images."""
        self.told(f"checking {archive.name}")
        if sha256_of(archive) != catalog.CIFAR10.sha256:
            cifar10.check(archive)


def _is_package(archive: Path) -> bool:
    with reading(archive, "cannot be read as a tar archive") as tar:
        return cifar10.PACKAGE_LABELS[0] in tar.getnames()
