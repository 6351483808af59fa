"""The Pixi workspace of a plan: its environments, each read once, and the files that the run's folder gets."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packtrain.pixi.environment import LOCK_FILENAME, WorkspaceEnvironment, read_environment
from packtrain.pixi.errors import PixiError
from packtrain.pixi.workspace_files import build_archive, collect_files
from packtrain.plan import ENVIRONMENT_FILE, PixiLock, RunFolder, write_pixi_lock


@dataclass(frozen=True)
class EnvironmentFiles:
    """What an environment's folder in the run's folder has."""

    lock: PixiLock
    local_files: Mapping[str, Path]  # packages that are files of this machine, by file name


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
