"""Combines manifest and lock file: everything that a worker needs for one environment."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from packtrain.pixi_workspace.errors import PixiError, Problem
from packtrain.pixi_workspace.lock_file import SUBDIR, CodePackage, LockedPlatform, read_locked_platform
from packtrain.pixi_workspace.machine_requirements import collect_requirements, parse_version
from packtrain.pixi_workspace.manifest import Manifest, ManifestEnvironment, Platform, normalize_name, read_manifest
from packtrain.pixi_workspace.tasks import TaskRenderer
from packtrain.plan import MachineRequirements, PixiLock, PixiPackage

LOCK_FILENAME = "pixi.lock"
_LOCK_CHECK_TIMEOUT_S = 60.0
_OUTDATED_MESSAGE = "not up-to-date"  # how `pixi lock --check` says it


@dataclass(frozen=True)
class WorkspaceEnvironment:
    """One environment of a workspace, complete."""

    manifest: Manifest
    name: str
    platform: Platform
    platforms: tuple[str, ...]  # the names of all platforms that the manifest declares for it
    lock: PixiLock
    locked_platform: str
    local_files: Mapping[str, Path]  # packages that are files of this machine, by file name
    requires: MachineRequirements
    activation_scripts: tuple[str, ...]
    activation_env: Mapping[str, str]
    python_path: tuple[str, ...]  # relative to the workspace
    tasks: TaskRenderer

    @cached_property
    def digest(self) -> str:
        """The identity of the installed prefix: two environments with equal packages have the same."""
        return compute_digest(self.lock.packages)


def compute_digest(packages: Iterable[PixiPackage]) -> str:
    """Return the sha256 of a list of packages. Their order is part of it: of two equal paths the later one stays."""
    lines = "".join(f"{package.sha256} {package.file_name}\n" for package in packages)
    return hashlib.sha256(lines.encode()).hexdigest()


def read_environment(manifest_path: Path, name: str, *, has_gpu: bool, must_ship: bool = True) -> WorkspaceEnvironment:
    """Read an environment of a workspace.

    Args:
        manifest_path: The pixi.toml or pyproject.toml; pixi.lock is next to it.
        name: The name of the environment.
        has_gpu: Choose the platform with CUDA, if the environment is locked for several platforms.
        must_ship: Refuse packages that cannot be sent to a worker; otherwise leave them out.

    Raises:
        PixiError: The environment cannot be used.
    """
    manifest = read_manifest(manifest_path)
    environment = manifest.environment(name)
    lock_path = manifest.folder / LOCK_FILENAME
    editable = _editable_packages(environment)
    locked = read_locked_platform(lock_path, name, has_gpu=has_gpu, editable=editable, must_ship=must_ship)
    platform = _find_platform(environment, locked)
    _check_up_to_date(manifest, environment, platform, locked)
    tasks = TaskRenderer(environment.tasks(platform), name, platform.name)
    wheels = [package.file_name for package in locked.packages if package.is_wheel]
    min_cuda = max(locked.cuda, environment.cuda_requirement(platform), key=parse_version)
    return WorkspaceEnvironment(
        manifest=manifest,
        name=name,
        platform=platform,
        platforms=tuple(platform.name for platform in environment.platforms),
        lock=PixiLock(locked.packages, locked.python, locked.site_packages, tuple(tasks.render_all())),
        locked_platform=locked.name,
        local_files=locked.local_files,
        requires=collect_requirements(locked.dependencies, wheels, min_cuda),
        activation_scripts=environment.activation_scripts(platform),
        activation_env=environment.activation_env(platform),
        python_path=tuple(_find_code(manifest.folder, package) for package in locked.code),
        tasks=tasks,
    )


def _find_platform(environment: ManifestEnvironment, locked: LockedPlatform) -> Platform:
    """Return the manifest's platform of what was locked, which has another name in the lock file."""
    candidates = [platform for platform in environment.platforms if platform.subdir == SUBDIR]
    named = [platform for platform in candidates if platform.name == locked.name]
    with_cuda = [platform for platform in candidates if parse_version(platform.cuda) == parse_version(locked.cuda)]
    return next(iter((*named, *with_cuda, *candidates)), Platform(locked.name, SUBDIR, locked.cuda))


def _editable_packages(environment: ManifestEnvironment) -> set[str]:
    """Return the normalized names of the Python packages that are installed as editable on some platform."""
    return {
        name
        for platform in environment.platforms
        for name, spec in environment.pypi_dependencies(platform).items()
        if isinstance(spec, Mapping) and spec.get("editable")
    }


def _find_code(workspace: Path, package: CodePackage) -> str:
    """Return the folder for PYTHONPATH: `src` below the package's folder, or that folder itself."""
    folder = workspace / package.folder
    modules = (package.name.replace("-", "_"), package.name.replace("-", "_") + ".py")
    is_flat = any((folder / module).exists() for module in modules)
    uses_src = (folder / "src").is_dir() and not is_flat
    return (Path(package.folder) / ("src" if uses_src else ".")).as_posix()


def _check_up_to_date(
    manifest: Manifest, environment: ManifestEnvironment, platform: Platform, locked: LockedPlatform
) -> None:
    """Raise PixiError if the lock file is older than the manifest.

    Without the program pixi only names are compared: a changed version is not noticed.
    """
    pixi = shutil.which("pixi")
    if pixi and _is_outdated(pixi, manifest):
        message = f"{manifest.folder / LOCK_FILENAME} does not match {manifest.path.name}, as `pixi lock --check` found"
        raise PixiError(Problem(message, "run `pixi lock`"))
    missing = list(_missing_names(environment, platform, locked))
    if missing:
        listed = ", ".join(missing)
        verb = "is" if len(missing) == 1 else "are"
        message = f"{manifest.folder / LOCK_FILENAME} is older than {manifest.path.name}: {listed} {verb} not in it"
        raise PixiError(Problem(message, "run `pixi lock`"))


def _is_outdated(pixi: str, manifest: Manifest) -> bool:
    """Ask the program pixi. It may fail for other reasons, for example without a network."""
    command = [pixi, "lock", "--check", "--manifest-path", str(manifest.path)]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=_LOCK_CHECK_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return process.returncode != 0 and _OUTDATED_MESSAGE in process.stderr + process.stdout


def _missing_names(environment: ManifestEnvironment, platform: Platform, locked: LockedPlatform) -> Iterator[str]:
    """Yield the names of the manifest's dependencies that the lock file does not have."""
    conda = {normalize_name(package.name) for package in locked.packages if not package.is_wheel}
    python = {normalize_name(package.name) for package in locked.packages if package.is_wheel}
    python |= {package.name for package in locked.code} | set(map(normalize_name, locked.pypi_names)) | conda
    yield from _absent(environment.conda_dependencies(platform), conda)
    yield from _absent(environment.pypi_dependencies(platform), python)


def _absent(specs: Mapping[str, Any], names: set[str]) -> Iterator[str]:
    yield from (name for name in specs if normalize_name(name) not in names)
