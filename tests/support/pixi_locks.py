"""Writes small Pixi workspaces by hand: what a manifest and a lock file say, without channels and solvers."""

from __future__ import annotations

import json

CHANNEL = "https://conda.example.org/forge"
INDEX = "https://files.example.org"
SHA256 = "ab" * 32


def conda(name, version="1.0", build="0", subdir="linux-64", **fields):
    """Return the entry of a conda package."""
    url = f"{CHANNEL}/{subdir}/{name}-{version}-{build}.conda"
    return {"conda": url, "sha256": SHA256, "size": 1000, **fields}


def wheel(name, version="1.0", tag="py3-none-any", **fields):
    """Return the entry of a wheel."""
    url = f"{INDEX}/{name.replace('-', '_')}-{version}-{tag}.whl"
    return {"pypi": url, "name": name, "version": version, "sha256": SHA256, **fields}


def local(path, name, version="1.0", **fields):
    """Return the entry of a Python package at a path."""
    return {"pypi": path, "name": name, "version": version, **fields}


def lock_text(packages_by_platform, version=6, platforms=None, environment="default"):
    """Return a lock file with one environment.

    Args:
        packages_by_platform: The entries by the name of the platform.
        version: Of the lock file.
        platforms: For version 7: virtual packages by name of the platform, which is linux-64 for all of them.
        environment: The name of the environment.
    """
    keys = ("conda", "pypi", "source")
    listed = {
        platform: [{key: entry[key] for key in keys if key in entry} for entry in entries]
        for platform, entries in packages_by_platform.items()
    }
    packages = {json.dumps(entry): entry for entries in packages_by_platform.values() for entry in entries}
    environments = {environment: {"channels": [{"url": f"{CHANNEL}/"}], "indexes": [INDEX], "packages": listed}}
    lock = {"version": version, "environments": environments, "packages": list(packages.values())}
    if platforms:
        names = [{"name": n, "subdir": "linux-64", "virtual-packages": v} for n, v in platforms.items()]
        lock = {"version": version, "platforms": names, **lock}
    return json.dumps(lock, indent=1) + "\n"


def write_files(folder, manifest, lock="", name="pixi.toml"):
    """Write a workspace and return the path of its manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    header = f'[workspace]\nname = "ws"\nchannels = ["{CHANNEL}"]\nplatforms = ["linux-64"]\n\n'
    (folder / name).write_text(manifest if "workspace]" in manifest else header + manifest)
    if lock:
        (folder / "pixi.lock").write_text(lock)
    return folder / name
