"""The Pixi workspace of a plan: its environments, each read once, and the files that the run's folder gets."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from packtrain.pixi_workspace.environment import LOCK_FILENAME, WorkspaceEnvironment, read_environment
from packtrain.pixi_workspace.errors import PixiError
from packtrain.pixi_workspace.workspace_files import build_archive, collect_files
from packtrain.plan import ENVIRONMENT_FILE, Location, PixiLock, PixiPackage, RunFolder, write_pixi_lock
from packtrain.planner.preflight import TIMEOUT_S
from packtrain.transfer.registry import get_source
from packtrain.transfer.tasks.parallel import run_with_deadline

_MAX_QUERIES = 16  # at once


@dataclass(frozen=True)
class EnvironmentFiles:
    """What an environment's folder in the run's folder has."""

    lock: PixiLock
    local_files: Mapping[str, Path]  # packages that are files of this machine, by file name


@dataclass(frozen=True)
class DownloadSize:
    """The size of an environment's packages."""

    known_bytes: int
    n_unknown: int  # packages whose size is not known

    @classmethod
    def of(cls, packages: Iterable[PixiPackage]) -> DownloadSize:
        sizes = [package.size for package in packages]
        return cls(sum(size or 0 for size in sizes), sizes.count(None))


@dataclass
class PixiWorkspaces:
    """Reads environments and builds the archive of the workspace, for all jobs of a plan."""

    environments: dict[str, EnvironmentFiles] = field(default_factory=dict)  # those that were read, by name
    archive: bytes = b""  # the workspace's files, a tar.gz
    _results: dict[tuple[Path, str, bool, bool], WorkspaceEnvironment | PixiError] = field(default_factory=dict)

    def read(self, manifest: Path, name: str, *, has_gpu: bool, must_ship: bool) -> WorkspaceEnvironment:
        """Return an environment. Raises PixiError, for every job the same."""
        key = (manifest, name, has_gpu, must_ship)
        if key not in self._results:
            try:
                self._results[key] = read_environment(manifest, name, has_gpu=has_gpu, must_ship=must_ship)
            except PixiError as error:
                self._results[key] = error
        result = self._results[key]
        if isinstance(result, PixiError):
            raise result
        self.environments[name] = EnvironmentFiles(result.lock, result.local_files)
        return result

    def collect(self, environment: WorkspaceEnvironment, patterns: Sequence[str]) -> None:
        """Build the archive of the workspace's files, once. Raises PixiError."""
        if self.archive:
            return
        manifest = environment.manifest
        always = (manifest.path.name, LOCK_FILENAME, *environment.activation_scripts)
        files = collect_files(manifest.folder, patterns, always)
        self.archive = build_archive(manifest.folder, files)

    def query_sizes(self) -> None:
        """Ask the servers for the sizes that the lock file does not have, those of wheels."""
        packages = [package for files in self.environments.values() for package in files.lock.packages]
        urls = {package.url for package in packages if package.size is None and package.url}
        tasks = {url: partial(_query_size, url) for url in urls}
        found = run_with_deadline(tasks, TIMEOUT_S, _MAX_QUERIES)
        sizes = {url: size for url, size in found.items() if isinstance(size, int)}
        for name, files in self.environments.items():
            sized = tuple(replace(p, size=sizes.get(p.url)) if p.size is None else p for p in files.lock.packages)
            self.environments[name] = replace(files, lock=replace(files.lock, packages=sized))

    @property
    def download_sizes(self) -> dict[str, DownloadSize]:
        """The sizes of the environments, by name."""
        return {name: DownloadSize.of(files.lock.packages) for name, files in self.environments.items()}

    @property
    def package_sources(self) -> dict[str, tuple[str, ...]]:
        """The channels and hosts that the lock file names for each environment."""
        return {name: _package_sources(files.lock.packages) for name, files in self.environments.items()}

    def write(self, folder: RunFolder) -> None:
        """Write the environments and the archive to the run's folder."""
        for name, files in self.environments.items():
            environment_folder = folder.pixi_environment(name)
            environment_folder.mkdir(parents=True)
            write_pixi_lock(files.lock, environment_folder / ENVIRONMENT_FILE)
            for file_name, path in files.local_files.items():
                shutil.copyfile(path, environment_folder / file_name)
        if self.archive:
            folder.workspace_archive.write_bytes(self.archive)


def _query_size(url: str) -> int | None:
    location = Location(url)
    return get_source(location, str).stat(location).size


def _package_sources(packages: Iterable[PixiPackage]) -> tuple[str, ...]:
    """Return the URLs of channels, the hosts of wheels, and where packages are files of this machine."""
    return tuple(dict.fromkeys(_package_source(package) for package in packages))


def _package_source(package: PixiPackage) -> str:
    if not package.url:
        return "this machine"
    parts = urlsplit(package.url)
    folder = "" if package.is_wheel else parts.path.rpartition(f"/{package.subdir}/")[0]
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{folder}"
