"""The same lock file installed by packtrain, and by Pixi's own libraries: rattler and uv."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import rattler
from rattler.shell import ActivationVariables, PathModificationBehavior, Shell
from rattler.shell import activate as rattler_activate

from packtrain.pixi.activation import Activation, activate
from packtrain.pixi.installer import install_packages
from packtrain.pixi.package_sources import PackageFetcher
from packtrain.pixi_workspace.environment import read_environment
from packtrain.plan import Location, PixiEnvironment
from testbed.pixi.workspace import LOCK_VERSIONS, write_workspace

pytestmark = pytest.mark.slow

# What only rattler and uv write: their own records, and the files that another package has.
ONLY_THEIRS = {"INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "CACHEDIR.TAG"}
# What has other bytes by design: RECORD lists those files, and uv's scripts have another text with the same function.
DIFFERENT_CONTENT = {"RECORD", "wheel-tool"}
PREFIXES = {"short": "p", "long": "x" * 130, "blank": "with blank"}


def tree(prefix):
    """Return the mode and digest of each file, and the target of each link."""
    found = {}
    for parent, folders, names in os.walk(prefix):
        folders[:] = [name for name in folders if name not in ("conda-meta", "__clobbers__", "__pycache__")]
        for name in [*names, *(one for one in folders if os.path.islink(os.path.join(parent, one)))]:
            path = Path(parent, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                found[str(path.relative_to(prefix))] = os.readlink(path)
            else:
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                found[str(path.relative_to(prefix))] = (oct(stat.S_IMODE(mode)), digest)
    return found


def install(environment, prefix, downloads):
    downloads.mkdir(exist_ok=True)
    fetcher = PackageFetcher(
        PixiEnvironment(environment.name, "linux-64", environment.digest, Location("file:///nowhere")),
        downloads,
        None,
        str,
        retry_timeout_s=5,
        check_cancelled=lambda: None,
        on_progress=lambda done, total: None,
    )
    install_packages(
        environment.lock,
        prefix.with_name("new"),
        str(prefix),
        fetcher.open_package,
        max_bytes=10**10,
        name="test",
        check_cancelled=lambda: None,
    )
    prefix.with_name("new").rename(prefix)


def install_with_rattler_and_uv(lock_path, environment, prefix, site, folder):
    lock = rattler.LockFile.from_path(lock_path)
    locked = dict(lock.environments())[environment.name]
    (platform,) = locked.platforms()
    records = locked.conda_repodata_records_for_platform(platform)
    asyncio.run(rattler.install(records, target_prefix=prefix, cache_dir=folder / "cache", show_progress=False))
    wheels = [site / "wheels" / package.file_name for package in environment.lock.packages if package.is_wheel]
    options = ["--quiet", "--no-deps", "--offline", "--no-cache", "--link-mode", "copy"]
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "pip", "install", *options, "--python", prefix / "bin/python", *wheels], check=True)


@pytest.mark.parametrize("version", LOCK_VERSIONS)
@pytest.mark.parametrize("name", PREFIXES)
def test_equal_trees(tmp_path, pixi_site, pixi_server, name, version):
    manifest = write_workspace(tmp_path / "ws", pixi_site, pixi_server.url, version)
    environment = read_environment(manifest, "cpu", has_gpu=False)
    prefix = tmp_path / PREFIXES[name] / "env"
    prefix.parent.mkdir()
    install(environment, prefix, tmp_path / "downloads")
    ours = tree(prefix)
    shutil.rmtree(prefix)
    install_with_rattler_and_uv(manifest.with_name("pixi.lock"), environment, prefix, pixi_site, tmp_path)
    theirs = tree(prefix)
    assert set(ours) <= set(theirs)
    assert {Path(path).name for path in set(theirs) - set(ours)} <= ONLY_THEIRS
    different = {path for path in ours if ours[path] != theirs[path]}
    assert {Path(path).name for path in different} <= DIFFERENT_CONTENT
    assert all(ours[path][0] == theirs[path][0] for path in different), "modes differ"
    assert len(ours) > 600
    ran = subprocess.run([prefix / "bin/wheel-tool"], stdout=subprocess.PIPE, text=True, check=True)
    assert ran.stdout == "wheel-tool 1.0\n"


def test_equal_activation(tmp_path, pixi_site, pixi_server):
    manifest = write_workspace(tmp_path / "ws", pixi_site, pixi_server.url)
    environment = read_environment(manifest, "cpu", has_gpu=False)
    prefix = tmp_path / "with blank"
    install(environment, prefix, tmp_path / "downloads")
    environ = {"PATH": "/usr/bin:/bin", "HOME": "/home/u", "DROPPED": "x", "KEPT": "a\nb"}
    ours = activate(Activation(str(prefix), {}), environ)
    current = ActivationVariables(None, environ["PATH"].split(":"), PathModificationBehavior.Replace)
    script = rattler_activate(prefix, current, Shell.bash, "linux-64").script
    command = ["bash", "--noprofile", "--norc", "-c", f"{script}\nexec /usr/bin/env -0"]
    shell = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True)
    theirs = dict(line.split("=", 1) for line in shell.stdout.decode().split("\0") if "=" in line)
    for variable in ("_", "SHLVL", "PWD", "OLDPWD"):
        theirs.pop(variable, None)
    assert ours == theirs
    assert ours["ACTIVE_NEXT"] == f"{prefix}/share/plain /home/u/none"
