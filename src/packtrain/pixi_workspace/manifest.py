"""Reads the manifest of a Pixi workspace: pixi.toml, or [tool.pixi] of pyproject.toml."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packtrain.pixi_workspace.errors import PixiError, Problem, missing_extra

MANIFEST_NAMES = ("pixi.toml", "pyproject.toml")
DEFAULT_ENVIRONMENT = "default"
_CONDA_TABLES = ("dependencies", "host-dependencies", "build-dependencies")
_REQUIREMENT_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")

Table = Mapping[str, Any]


@dataclass(frozen=True)
class Platform:
    """A platform that the manifest declares."""

    name: str  # how targets refer to it
    subdir: str
    cuda: str = ""  # the CUDA version of a machine of this platform

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the `target` tables that apply, the most specific first."""
        family = ("linux", "unix") if self.subdir.startswith("linux") else ()
        return tuple(dict.fromkeys((self.name, self.subdir, *family)))


@dataclass(frozen=True)
class Manifest:
    """The manifest of a workspace."""

    path: Path
    table: Table  # the content of pixi.toml, or of [tool.pixi]
    project: Table  # [project] of a pyproject.toml

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def workspace(self) -> Table:
        return _table(self.table, "workspace") or _table(self.table, "project")

    @property
    def name(self) -> str:
        return str(self.workspace.get("name") or self.project.get("name") or self.folder.name)

    @property
    def version(self) -> str:
        return str(self.workspace.get("version") or self.project.get("version") or "")

    @property
    def environment_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((DEFAULT_ENVIRONMENT, *_table(self.table, "environments"))))

    def environment(self, name: str) -> ManifestEnvironment:
        """Return an environment. Raises PixiError if there is none of that name."""
        if name not in self.environment_names:
            known = ", ".join(self.environment_names)
            raise PixiError(Problem(f"{self.path} has no environment {name!r}", f"it has {known}"))
        spec = _table(self.table, "environments").get(name, [])
        names = spec.get("features", []) if isinstance(spec, Mapping) else spec
        features = [_table(_table(self.table, "feature"), str(feature)) for feature in names]
        groups = [self._dependency_group(str(feature)) for feature in names]
        with_default = not (isinstance(spec, Mapping) and spec.get("no-default-feature"))
        return ManifestEnvironment(
            name,
            self._platforms(features),
            (*features, self.table) if with_default else tuple(features),
            tuple(r for group in groups for r in group)
            + (tuple(self.project.get("dependencies", ())) if with_default else ()),
        )

    def _dependency_group(self, feature: str) -> Sequence[str]:
        """Return the requirements of an optional dependency: Pixi makes it a feature of the same name."""
        return tuple(_table(self.project, "optional-dependencies").get(feature, ()))

    def _platforms(self, features: Sequence[Table]) -> tuple[Platform, ...]:
        declared = [_read_platform(entry) for entry in self.workspace.get("platforms", ())]
        limits = [
            {_read_platform(entry).name for entry in table["platforms"]} for table in features if "platforms" in table
        ]
        return tuple(platform for platform in declared if all(platform.name in names for names in limits))


@dataclass(frozen=True)
class ManifestEnvironment:
    """An environment: the tables of its features, the strongest first, and the requirements of a pyproject.toml."""

    name: str
    platforms: tuple[Platform, ...]
    features: tuple[Table, ...]
    requirements: tuple[str, ...] = ()  # as PEP 508 writes them

    def tables(self, platform: Platform) -> Iterator[Table]:
        """Yield all tables that apply on a platform, the strongest first."""
        for feature in self.features:
            yield from _target_tables(feature, platform)

    def activation_scripts(self, platform: Platform) -> tuple[str, ...]:
        """Return the scripts of all features; in each one those of the most specific target."""
        found: list[str] = []
        for feature in self.features:
            tables = (_table(table, "activation") for table in _target_tables(feature, platform))
            found += next((table["scripts"] for table in tables if "scripts" in table), ())
        return tuple(found)

    def activation_env(self, platform: Platform) -> dict[str, str]:
        """Return the variables of all features; the strongest value wins."""
        variables: dict[str, str] = {}
        for table in self.tables(platform):
            for key, value in _table(_table(table, "activation"), "env").items():
                variables.setdefault(key, str(value))
        return variables

    def tasks(self, platform: Platform) -> dict[str, Any]:
        """Return the tasks by name, as the manifest writes them."""
        tasks: dict[str, Any] = {}
        for table in self.tables(platform):
            tasks = {**_table(table, "tasks"), **tasks}
        return tasks

    def cuda_requirement(self, platform: Platform) -> str:
        """Return the CUDA version of `system-requirements`, or of the platform; "" if there is none."""
        found = (_table(table, "system-requirements").get("cuda") for table in self.tables(platform))
        return next((str(version) for version in found if version), platform.cuda)

    def conda_dependencies(self, platform: Platform) -> dict[str, Any]:
        """Return the conda packages that every machine of the platform gets, with their specs."""
        specs: dict[str, Any] = {}
        for table in self.tables(platform):
            for key in _CONDA_TABLES:
                specs = {**_table(table, key), **specs}
        return {name: spec for name, spec in specs.items() if not (isinstance(spec, Mapping) and "when" in spec)}

    def pypi_dependencies(self, platform: Platform) -> dict[str, Any]:
        """Return the Python packages with their specs, by normalized name."""
        specs: dict[str, Any] = {}
        for table in self.tables(platform):
            specs = {**{normalize_name(n): s for n, s in _table(table, "pypi-dependencies").items()}, **specs}
        names = (_REQUIREMENT_NAME.match(text) for text in self.requirements if ";" not in text)
        return {**{normalize_name(match.group(1)): "*" for match in names if match}, **specs}


def find_manifest(folder: Path) -> Path | None:
    """Return the manifest in a folder; a pyproject.toml only if it has [tool.pixi]."""
    for name in MANIFEST_NAMES:
        path = folder / name
        if path.is_file() and (name == MANIFEST_NAMES[0] or "[tool.pixi" in path.read_text(encoding="utf-8")):
            return path
    return None


def read_manifest(path: Path) -> Manifest:
    """Read a manifest. Raises PixiError."""
    try:
        import tomli  # Pixi's manifests are TOML 1.1, which Python's own tomllib refuses before 3.15
    except ImportError as error:
        raise missing_extra(error) from None
    try:
        document: Table = tomli.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PixiError(Problem(f"there is no {path}", "name the manifest: a pixi.toml or pyproject.toml")) from None
    except (OSError, ValueError) as error:
        raise PixiError(Problem(f"{path} cannot be read: {error}")) from None
    if path.name != "pyproject.toml":
        return Manifest(path, document, {})
    table = _table(_table(document, "tool"), "pixi")
    if not table:
        raise PixiError(Problem(f"{path} has no [tool.pixi]", "run `pixi init` in its folder"))
    return Manifest(path, table, _table(document, "project"))


def normalize_name(name: str) -> str:
    """Return the name of a package as lock files write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _target_tables(feature: Table, platform: Platform) -> Iterator[Table]:
    """Yield the tables of a feature that apply on a platform, the most specific first."""
    targets = _table(feature, "target")
    yield from (_table(targets, name) for name in platform.targets)
    yield feature


def _read_platform(entry: Any) -> Platform:
    """Return a platform, written as `linux-64` or as a table."""
    if isinstance(entry, Mapping):
        subdir = str(entry.get("platform") or entry.get("name") or "")
        return Platform(str(entry.get("name") or subdir), subdir, str(entry.get("cuda") or ""))
    return Platform(str(entry), str(entry))


def _table(parent: Table, key: str) -> Table:
    """Return a nested table; an empty one if there is none."""
    value = parent.get(key)
    return value if isinstance(value, Mapping) else {}
