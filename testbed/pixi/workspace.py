"""Writes a Pixi workspace whose environments are locked against the channel, as the program `pixi lock` would."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import rattler

from testbed.pixi.channel import PYTHON_VERSION

LOCK_VERSIONS = (6, 7)
_MACHINE = {"__unix": "0", "__linux": "4.18", "__glibc": "2.28"}
_COMMON = ["purelib", "textual", "binary", "active", "linker", "second", "third", f"python {PYTHON_VERSION}.*"]
# The packages and the CUDA version that each environment adds.
ENVIRONMENTS: Mapping[str, tuple[list[str], str]] = {
    "default": ([], ""),
    "cpu": (["accel * cpu*"], ""),
    "gpu": (["accel * cuda*"], "12"),
    "fast": (["fast"], ""),
}
_MANIFEST = """\
[workspace]
name = "channel-test"
version = "0.1.0"
channels = ["{channel}"]
platforms = ["linux-64"]

[activation.env]
FROM_MANIFEST = "yes"

[dependencies]
python = "{python}.*"
purelib = "*"
textual = "*"
binary = "*"
active = "*"
linker = "*"
second = "*"
third = "*"

[pypi-dependencies]
{wheels}
[tasks]
hello = "echo hello"
train = {{ cmd = "python train.py", env = {{ EPOCHS = "2" }}, depends-on = ["hello"] }}

[feature.cpu.dependencies]
accel = {{ version = "*", build = "cpu*" }}

[feature.gpu.system-requirements]
cuda = "12"

[feature.gpu.dependencies]
accel = {{ version = "*", build = "cuda*" }}

[feature.fast.dependencies]
fast = "*"

[environments]
cpu = ["cpu"]
gpu = ["gpu"]
fast = ["fast"]
"""


def write_workspace(folder: Path, site: Path, base_url: str, version: int = LOCK_VERSIONS[-1]) -> Path:
    """Write `pixi.toml` and `pixi.lock` and return the path of the manifest.

    Args:
        folder: The folder of the workspace.
        site: The folder that `build_channel` filled.
        base_url: The URL under which that folder is served.
        version: Of the lock file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wheels = [_describe_wheel(path, base_url) for path in sorted((site / "wheels").glob("*.whl"))]
    lines = "".join(f'{wheel["name"]} = "=={wheel["version"]}"\n' for wheel in wheels)
    channel = f"{base_url}/channel"
    python = PYTHON_VERSION.rpartition(".")[0]
    (folder / "pixi.toml").write_text(_MANIFEST.format(channel=channel, python=python, wheels=lines))
    solved = asyncio.run(_solve_environments(site / "channel"))
    lock = _make_lock(
        {name: _describe_packages(records, channel) for name, records in solved.items()}, wheels, base_url
    )
    path = folder / "pixi.lock"
    path.write_text(json.dumps(lock, indent=1) + "\n")  # JSON is YAML, too
    if version == LOCK_VERSIONS[-1]:
        rattler.LockFile.from_path(path).to_path(path)  # always writes its newest version
    return folder / "pixi.toml"


async def _solve_environments(channel: Path) -> dict[str, list[rattler.RepoDataRecord]]:
    solved = {}
    for name, (specs, cuda) in ENVIRONMENTS.items():
        machine = {**_MACHINE, **({"__cuda": cuda + ".9"} if cuda else {})}
        virtual = [_virtual_package(*item) for item in machine.items()]
        virtual.append(_virtual_package("__archspec", "1", "x86_64_v2"))
        solved[name] = await rattler.solve(
            [channel.as_uri()], _COMMON + specs, platforms=["linux-64", "noarch"], virtual_packages=virtual
        )
    return solved


def _virtual_package(name: str, version: str, build: str = "0") -> rattler.GenericVirtualPackage:
    return rattler.GenericVirtualPackage(
        rattler.PackageName(name), rattler.Version(version), rattler.BuildString(build)
    )


def _describe_packages(records: Iterable[rattler.RepoDataRecord], channel: str) -> list[dict[str, Any]]:
    """Return the packages as a lock file of version 6 has them."""
    keys = ("sha256", "md5", "depends", "constrains", "size", "noarch", "python_site_packages_path")
    described = []
    for record in sorted(records, key=lambda record: record.name.normalized):
        values = json.loads(record.to_json())
        url = f"{channel}/{record.subdir}/{record.file_name}"
        described.append({"conda": url, **{key: values[key] for key in keys if values.get(key)}})
    return described


def _describe_wheel(path: Path, base_url: str) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    fields = dict(re.findall(r"^(Name|Version): (.*)$", metadata, re.M))
    required = [text for text in re.findall(r"^Requires-Dist: (.*)$", metadata, re.M) if "extra ==" not in text]
    wheel = {
        "pypi": f"{base_url}/wheels/{quote(path.name)}",
        "name": fields["Name"].lower(),
        "version": fields["Version"],
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    return {**wheel, "requires_dist": required} if required else wheel


def _make_lock(
    environments: Mapping[str, list[dict[str, Any]]], wheels: list[dict[str, Any]], base_url: str
) -> dict[str, Any]:
    """Return a lock file of version 6."""
    described = {package["conda"]: package for packages in environments.values() for package in packages}
    listed_wheels = [{"pypi": wheel["pypi"]} for wheel in wheels]
    return {
        "version": 6,
        "environments": {
            name: {
                "channels": [{"url": f"{base_url}/channel/"}],
                "indexes": [f"{base_url}/wheels"],
                "packages": {"linux-64": [{"conda": package["conda"]} for package in packages] + listed_wheels},
            }
            for name, packages in environments.items()
        },
        "packages": [*described.values(), *wheels],
    }
