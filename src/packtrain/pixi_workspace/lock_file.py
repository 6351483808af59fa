"""Reads pixi.lock with py-rattler, Pixi's own library, so that it knows every version that Pixi writes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from packtrain.pixi_workspace.errors import PixiError, Problem, missing_extra
from packtrain.pixi_workspace.machine_requirements import parse_version
from packtrain.plan import PixiPackage

if TYPE_CHECKING:
    from rattler import LockFile
    from rattler.lock import CondaLockedBinaryPackage, Environment, LockedPackage, LockPlatform, PypiLockedPackage

SUBDIR = "linux-64"  # workers run Linux on x86-64
_LOCK_COMMAND = "run `pixi lock`"
_URL_SCHEMES = ("http://", "https://", "s3://", "oci://")
_BUILD_BACKEND = re.compile(r"""^build-backend\s*=\s*["'](maturin|mesonpy|scikit_build_core|py_build_cmake)""", re.M)
_CUDA = re.compile(r"__cuda=([\d.]+)")


@dataclass(frozen=True)
class CodePackage:
    """A Python package whose folder in the workspace is used in place."""

    name: str
    folder: str  # relative to the lock file


@dataclass(frozen=True)
class LockedPlatform:
    """The packages of an environment for one platform, in the order of installation."""

    name: str  # linux-64, or a name such as "p2"
    cuda: str  # the CUDA version that it was solved for; "" for a machine without GPU
    packages: tuple[PixiPackage, ...]
    local_files: dict[str, Path]  # the packages that are files of this machine, by file name
    code: tuple[CodePackage, ...]
    dependencies: tuple[str, ...]  # of all conda packages, with their constraints
    pypi_names: frozenset[str]  # names of Python packages that conda packages provide
    python: str  # "3.12"; "" without Python
    site_packages: str


def read_locked_platform(
    path: Path, environment: str, *, has_gpu: bool, editable: Iterable[str], must_ship: bool = True
) -> LockedPlatform:
    """Read what the lock file has for an environment on linux-64.

    Args:
        path: The lock file.
        environment: The name of the environment.
        has_gpu: Choose the platform with CUDA, if the environment is locked for several platforms.
        editable: Normalized names of the Python packages that the manifest installs as editable.
        must_ship: Refuse packages that cannot be sent to a worker; otherwise leave them out.

    Raises:
        PixiError: The environment is not locked, or has packages that cannot be sent to a worker.
    """
    locked = _get_environment(_load(path), path, environment)
    platform = _choose_platform(locked, environment, has_gpu)
    packages = locked.packages(platform) or []
    return _Reader(path.parent, frozenset(editable), must_ship).read(platform, packages)


def _load(path: Path) -> LockFile:
    try:
        import rattler
    except ImportError as error:
        raise missing_extra(error) from None
    if not path.is_file():
        raise PixiError(Problem(f"there is no {path}", f"{_LOCK_COMMAND} and keep the file with the manifest"))
    try:
        return rattler.LockFile.from_path(path)
    except Exception as error:  # the bindings have no common base class of their errors
        reason = " ".join(str(error).split())
        raise PixiError(
            Problem(
                f"py-rattler cannot read {path}: {reason}", "update py-rattler, or run `pixi lock` with a newer pixi"
            )
        ) from None


def _get_environment(lock: LockFile, path: Path, name: str) -> Environment:
    environment = lock.environment(name)
    if environment is None:
        known = ", ".join(sorted(known_name for known_name, _ in lock.environments())) or "none"
        raise PixiError(Problem(f"{path} has no environment {name!r}, it has {known}", _LOCK_COMMAND))
    return environment


def _choose_platform(environment: Environment, name: str, has_gpu: bool) -> LockPlatform:
    """Return the platform with the newest CUDA for a job with GPUs, otherwise the first one without CUDA."""
    platforms = [platform for platform in environment.platforms() if str(platform.subdir) == SUBDIR]
    if not platforms:
        locked = ", ".join(sorted(platform.name for platform in environment.platforms())) or "no platform"
        message = f"the environment {name!r} is locked for {locked}, not for {SUBDIR}"
        raise PixiError(Problem(message, f"run `pixi workspace platform add {SUBDIR}`"))
    cuda = {platform.name: platform_cuda(platform.virtual_packages) for platform in platforms}
    if has_gpu:
        return max(platforms, key=lambda platform: parse_version(cuda[platform.name]))
    return next((platform for platform in platforms if not cuda[platform.name]), platforms[0])


def platform_cuda(virtual_packages: Iterable[str]) -> str:
    """Return the version in `__cuda=12`, or ""."""
    found = (_CUDA.match(text) for text in virtual_packages)
    return next((match.group(1) for match in found if match), "")


@dataclass(frozen=True)
class _PackageFile:
    """Where the file of a package is."""

    url: str  # empty: a file of this machine
    name: str
    sha256: str
    size: int | None = None  # None: not known from the file itself


class _Reader:
    """Reads the packages of one platform and collects all problems."""

    def __init__(self, folder: Path, editable: frozenset[str], must_ship: bool) -> None:
        self._folder, self._editable, self._must_ship = folder, editable, must_ship
        self._problems: list[Problem] = []
        self._local_files: dict[str, Path] = {}
        self._code: list[CodePackage] = []

    def read(self, platform: LockPlatform, packages: Sequence[LockedPackage]) -> LockedPlatform:
        from rattler.lock import CondaLockedBinaryPackage, PypiLockedPackage

        conda = {package.name: package for package in packages if isinstance(package, CondaLockedBinaryPackage)}
        wheels = [package for package in packages if isinstance(package, PypiLockedPackage)]
        for package in packages:
            if not isinstance(package, (CondaLockedBinaryPackage, PypiLockedPackage)):
                self._refuse(
                    f"{package.name} is built from source ({package.location}), which packtrain cannot do",
                    "build it, add it to a channel and lock it from there",
                )
        records = {name: package.repo_data_record() for name, package in conda.items()}
        planned = [self._plan_conda(conda[name], records[name]) for name in _installation_order(records)]
        planned += [self._plan_wheel(wheel) for wheel in sorted(wheels, key=lambda wheel: wheel.name)]
        if self._problems and self._must_ship:
            raise PixiError(*self._problems)
        python = records.get("python")
        version = ".".join(str(python.version).split(".")[:2]) if python else ""
        return LockedPlatform(
            name=platform.name,
            cuda=platform_cuda(platform.virtual_packages),
            packages=tuple(package for package in planned if package),
            local_files=self._local_files,
            code=tuple(self._code),
            dependencies=tuple(text for record in records.values() for text in (*record.depends, *record.constrains)),
            pypi_names=frozenset(name for record in records.values() for name in _provided_pypi_names(record)),
            python=version,
            site_packages=(python.python_site_packages_path or f"lib/python{version}/site-packages") if python else "",
        )

    def _refuse(self, message: str, hint: str) -> None:
        self._problems.append(Problem(message, hint))

    def _plan_conda(self, package: CondaLockedBinaryPackage, record: Any) -> PixiPackage | None:
        file = self._find_file(package.name, package.location, record.sha256)
        if file is None:
            return None
        return PixiPackage(
            name=package.name,
            version=str(record.version),
            url=file.url,
            file_name=file.name,
            sha256=file.sha256,
            size=record.size if file.size is None else file.size,
            build=str(record.build),
            subdir=record.subdir,
            noarch=_noarch(record),
        )

    def _plan_wheel(self, package: PypiLockedPackage) -> PixiPackage | None:
        location = package.location.removeprefix("direct+")  # not from an index
        path = location.partition("#")[0]
        if location.startswith("git+"):
            self._refuse(f"{package.name} comes from git", "build a wheel of it and lock the wheel")
            return None
        if PurePosixPath(urlsplit(path).path).suffix != ".whl":
            self._plan_source(package, path)
            return None
        file = self._find_file(package.name, path, _wheel_sha256(package))
        if file is None:
            return None
        return PixiPackage(package.name, str(package.version), file.url, file.name, file.sha256, file.size)

    def _plan_source(self, package: PypiLockedPackage, path: str) -> None:
        """Accept an editable package of the workspace; refuse other sources."""
        folder = self._folder / path
        is_folder = "://" not in path and folder.is_dir()
        is_inside = is_folder and folder.resolve().is_relative_to(self._folder.resolve())
        is_code = is_inside and package.name in self._editable
        if is_code and (backend := _compiling_backend(folder)):
            self._refuse(
                f"{package.name} must be compiled (by {backend}), so its code alone is not enough",
                "build a wheel of it and lock the wheel",
            )
        elif is_code:
            self._code.append(CodePackage(package.name, path))
        elif is_folder:
            self._refuse(
                f"{package.name} is built from the folder {path}",
                f'set `{package.name} = {{ path = "{path}", editable = true }}`, and its code is sent as it is',
            )
        else:
            self._refuse(
                f"{package.name} has no wheel for this platform, only its source ({PurePosixPath(path).name})",
                "lock a version that has wheels, or add it from a conda channel",
            )

    def _find_file(self, package: str, location: str, locked_sha256: bytes | None) -> _PackageFile | None:
        """Return the file of a package, or None if it is refused."""
        name = PurePosixPath(unquote(urlsplit(location).path)).name
        sha256 = locked_sha256.hex() if locked_sha256 else ""
        if not location.startswith(_URL_SCHEMES):
            return self._find_local_file(name, location, sha256)
        if not sha256:
            self._refuse(f"{package} has no sha256 in the lock file", f"{_LOCK_COMMAND} to add it")
            return None
        return _PackageFile(location, name, sha256)

    def _find_local_file(self, name: str, location: str, locked_sha256: str) -> _PackageFile | None:
        path = Path(unquote(urlsplit(location).path)) if location.startswith("file:") else self._folder / location
        if not path.is_file():
            self._refuse(f"{path} does not exist on this machine", f"build it, or {_LOCK_COMMAND}")
            return None
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        if locked_sha256 and locked_sha256 != sha256:
            self._refuse(f"{path} has changed since it was locked", _LOCK_COMMAND)
        self._local_files[name] = path
        return _PackageFile("", name, sha256, path.stat().st_size)


def _installation_order(records: dict[str, Any]) -> list[str]:
    """Return names of conda packages, each after those it depends on, in the order of Pixi's own installer."""
    from rattler import PackageRecord

    return [record.name.normalized for record in PackageRecord.sort_topologically(list(records.values()))]


def _wheel_sha256(package: PypiLockedPackage) -> bytes | None:
    try:
        return package.hashes.sha256 if package.hashes else None
    except AttributeError:  # py-rattler 0.28: the hashes of a package without hashes are an object without content
        return None


def _compiling_backend(folder: Path) -> str:
    """Return the build backend of a package that compiles, or ""."""
    manifest = folder / "pyproject.toml"
    text = manifest.read_text(encoding="utf-8") if manifest.is_file() else ""
    match = _BUILD_BACKEND.search(text)
    return match.group(1) if match else ""


def _noarch(record: Any) -> str:
    noarch = record.noarch
    return "python" if noarch.python else "generic" if noarch.generic else ""


def _provided_pypi_names(record: Any) -> Iterable[str]:
    """Yield the names of Python packages that a conda package contains (`pkg:pypi/NAME`)."""
    for purl in json.loads(record.to_json()).get("purls") or ():
        if purl.startswith("pkg:pypi/"):
            yield purl.removeprefix("pkg:pypi/").partition("?")[0].partition("@")[0]
