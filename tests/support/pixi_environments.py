"""Locked environments of packages that `testbed.pixi.packages` builds, without a solver."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from packtrain.pixi.installer import install_packages
from packtrain.plan import (
    ENVIRONMENT_FILE,
    EnvironmentConfig,
    Location,
    PixiEnvironment,
    PixiLock,
    PixiPackage,
    write_pixi_lock,
)
from testbed.pixi.packages import CondaPackage, build_wheel

PLACEHOLDER = "/opt/build/placehold".ljust(255, "_")
SITE_PACKAGES = "lib/python3.12/site-packages"


def lock_package(path, url=""):
    """Return the entry of the lock file for a package on disk; without a URL it belongs to the environment's folder."""
    path = Path(path)
    name, version = path.name.split("-")[:2]
    data = path.read_bytes()
    return PixiPackage(name, version, url, path.name, hashlib.sha256(data).hexdigest(), len(data))


def make_lock(*packages, **fields):
    return PixiLock(tuple(packages), **{"python": "3.12", "site_packages": SITE_PACKAGES, **fields})


def write_environment(folder, lock, name="default", **fields):
    """Write the shared file of an environment, and return the environment."""
    folder.mkdir(parents=True, exist_ok=True)
    write_pixi_lock(lock, folder / ENVIRONMENT_FILE)
    digest = hashlib.sha256(",".join(package.sha256 for package in lock.packages).encode()).hexdigest()
    defaults = {
        "workspace_name": "ws",
        "platforms": ("linux-64",),
        "n_packages": len(lock.packages),
        "download_bytes": sum(package.size or 0 for package in lock.packages),
        "n_unknown_sizes": sum(package.size is None for package in lock.packages),
    }
    return PixiEnvironment(name, "linux-64", digest, Location(folder.as_uri()), **{**defaults, **fields})


def pixi_config(environment):
    return EnvironmentConfig(pixi=environment)


def install_files(paths, folder, prefix="", max_bytes=10**9, **lock_fields):
    """Install packages from disk, in this order, into a new folder."""
    by_name = {Path(path).name: Path(path) for path in paths}
    return install_packages(
        make_lock(*map(lock_package, paths), **lock_fields),
        folder,
        prefix or str(folder),
        lambda package: contextlib.nullcontext(by_name[package.file_name]),
        max_bytes=max_bytes,
        name="the environment test",
        check_cancelled=lambda: None,
    )


def small_packages(folder):
    """Write two conda packages and a wheel, with placeholders, activation and a script that needs no Python."""
    tool = CondaPackage("tool").add(
        "bin/tool", f"#!/bin/sh\necho tool in {PLACEHOLDER}\n", 0o755, placeholder=PLACEHOLDER
    )
    tool.add("etc/conda/activate.d/tool.sh", 'export TOOL_HOME="$CONDA_PREFIX/share"\n')
    library = CondaPackage("library").add(
        "lib/library.so",
        b"\x7fELF\0" + PLACEHOLDER.encode() + b"/lib\0",
        0o755,
        placeholder=PLACEHOLDER,
        file_mode="binary",
    )
    return [
        tool.write(folder, ".tar.bz2"),
        library.write(folder),
        build_wheel(folder, "pure", scripts={"pure": "pure:main"}),
    ]
