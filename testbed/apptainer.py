"""A real Apptainer in a folder, and small images for it, built without network or root.

`python -m testbed.apptainer ARGS…` runs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from testbed import debian

CONFIG_PATH = "etc/apptainer/apptainer.conf"


def install_dir() -> Path:
    """Return the folder of Apptainer, installed if needed. Put its `usr/bin` first in PATH."""
    return debian.install(debian.cache_dir() / "apptainer", PACKAGE_SPEC)


def apptainer_path() -> Path:
    """Return the path of the `apptainer` program."""
    return install_dir() / "usr/bin/apptainer"


def _post_install(new: Path, final: Path) -> None:
    """Link its configuration and folders to where a relocated Apptainer expects them, next to its programs."""
    for top in ("usr", "usr/lib"):
        (new / top / "etc").symlink_to(os.path.relpath(new / "etc", new / top))
        (new / top / "var/lib/apptainer/mnt/session").mkdir(parents=True)
    text = (new / CONFIG_PATH).read_text()
    # In a container or a user namespace, root lacks some capabilities that Apptainer requests by default.
    text = text.replace("\nroot default capabilities = full\n", "\nroot default capabilities = no\n")
    text += f"\nbinary path = {final}/usr/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
    (new / CONFIG_PATH).write_text(text)


PACKAGE_SPEC = debian.PackageSpec("sid", ("apptainer", "squashfs-tools", "busybox-static"), _post_install)


def build_sif(image: Path, runscript: str = "", environment: str = "") -> Path:
    """Build a SIF image with only busybox; `runscript` and `environment` are shell lines, as in a definition file."""
    tree = build_root_tree(image.with_name(image.name + ".tree"), runscript, environment)
    subprocess.run([apptainer_path(), "-q", "build", image, tree], check=True)
    shutil.rmtree(tree)
    return image


def build_sandbox(image: Path) -> Path:
    """Build the same image as a sandbox folder, with the files that HTCondor's image test needs."""
    tree = build_root_tree(image.with_name(image.name + ".tree"))
    subprocess.run([apptainer_path(), "-q", "build", "--sandbox", image, tree], check=True)
    shutil.rmtree(tree)
    return image


def build_root_tree(tree: Path, runscript: str = "", environment: str = "") -> Path:
    """Write the bare files, which Apptainer also accepts as an image."""
    for name in ("bin", "etc", "proc", "sys", "dev", "tmp", "root", ".singularity.d/env"):
        (tree / name).mkdir(parents=True)
    shutil.copy(install_dir() / "usr/bin/busybox", tree / "bin/busybox")
    for applet in subprocess.check_output([tree / "bin/busybox", "--list"], text=True).split():
        if applet != "busybox":
            (tree / "bin" / applet).symlink_to("busybox")
    (tree / "etc/passwd").touch()
    (tree / "etc/group").touch()
    _write_script(tree / ".singularity.d/runscript", runscript)
    _write_script(tree / ".singularity.d/env/90-environment.sh", environment)
    return tree


def _write_script(path: Path, lines: str) -> None:
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)


if __name__ == "__main__":
    os.execv(apptainer_path(), [str(apptainer_path()), *sys.argv[1:]])
