"""A channel with one package for each rule of installing conda packages. Its `python` is the running interpreter."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from rattler.index import index_fs

from testbed.pixi.packages import CondaPackage, build_wheel

PLACEHOLDER = "/opt/build/placehold".ljust(255, "_")  # conda-build pads prefixes to 255 characters
SHORT_PLACEHOLDER = "/opt/build/short"
PYTHON_VERSION = ".".join(map(str, sys.version_info[:3]))
_PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"
SITE_PACKAGES = f"lib/{_PYTHON}/site-packages"
_OMITTED = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idlelib", "tkinter", "turtledemo"}
_OMITTED |= {"ensurepip", "lib2to3"}


def build_channel(folder: Path, wheels: Iterable[Path] = ()) -> Path:
    """Write `channel` (conda packages, with the repodata.json of rattler's own indexer) and `wheels` below a folder.

    Args:
        folder: The folder that an HTTP server shows.
        wheels: More wheels to serve, for example of PyTorch.
    """
    for package, suffix in conda_packages():
        package.write(folder / "channel", suffix)
    asyncio.run(index_fs(folder / "channel"))
    build_wheel(folder / "wheels", "wheel-tool", scripts={"wheel-tool": "wheel_tool:main"})
    build_wheel(folder / "wheels", "wheel-native", "2.1", tag=f"cp37-abi3-{_platform_tags()}", requires=("wheel-tool",))
    for wheel in wheels:
        shutil.copy(wheel, folder / "wheels")
    return folder


def _platform_tags() -> str:
    """Return two tags, of which the older one counts: the wheel runs with glibc 2.17."""
    return "manylinux_2_17_x86_64.manylinux_2_24_x86_64"


def conda_packages() -> Iterator[tuple[CondaPackage, str]]:
    """Yield all packages of the channel and their formats."""
    yield _python(), ".conda"
    yield _noarch_python(), ".conda"
    yield _text_placeholders(), ".tar.bz2"
    yield _binary_placeholders(), ".conda"
    short = CondaPackage("short")
    short.add(
        "lib/short.so",
        f"\0{SHORT_PLACEHOLDER}/lib\0".encode(),
        0o755,
        placeholder=SHORT_PLACEHOLDER,
        file_mode="binary",
    )
    yield short, ".conda"
    yield _activation(), ".conda"
    yield _post_link(), ".tar.bz2"
    yield CondaPackage("first").add("share/shared.txt", "of first\n").add("share/first/own"), ".conda"
    yield (
        CondaPackage("second", depends=("first",)).add("share/shared.txt", "of second\n").add("share/second"),
        ".conda",
    )
    yield CondaPackage("third").add("share/shared.txt", "of third\n"), ".conda"  # knows neither of them
    for build, depends in (("cpu_0", ()), ("cuda_0", ("__cuda >=12.4",))):
        accel = CondaPackage("accel", build=build, depends=("python", "__glibc >=2.28,<3.0.a0", *depends))
        yield accel.add(f"{SITE_PACKAGES}/accel.py", f"KIND = {build!r}\n"), ".conda"
    level = CondaPackage("_x86_64-microarch-level", "2", "2_x86_64_v2", "noarch", ("__archspec 1 x86_64_v2",))
    level.noarch = "generic"
    yield level, ".conda"
    yield CondaPackage("fast", depends=("_x86_64-microarch-level >=2",)).add("share/fast"), ".conda"


def _python() -> CondaPackage:
    package = CondaPackage(
        "python", PYTHON_VERSION, "0_test", depends=("__glibc >=2.17", "__unix"), site_packages=SITE_PACKAGES
    )
    program = Path(os.path.realpath(Path(sys.base_prefix, "bin", _PYTHON)))
    package.add(f"bin/{_PYTHON}", program.read_bytes(), 0o755)
    package.add("bin/python3", symlink=_PYTHON).add("bin/python", symlink=_PYTHON)
    library = Path(sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME") or "none")
    if sysconfig.get_config_var("Py_ENABLE_SHARED") and library.is_file():
        package.add(f"lib/{library.name}", library.read_bytes(), 0o755)
    stdlib = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))
    for path in sorted(stdlib.rglob("*")):
        inside = path.relative_to(stdlib)
        if path.is_file() and not _OMITTED & set(inside.parts) and not inside.parts[0].startswith("config-"):
            mode = path.stat().st_mode & 0o777
            package.add(f"lib/{_PYTHON}/{inside.as_posix()}", path.read_bytes(), mode)
    return package


def _noarch_python() -> CondaPackage:
    package = CondaPackage("purelib", build="pyh_0", subdir="noarch", depends=("python",), noarch="python")
    package.add(
        "site-packages/purelib/__init__.py",
        "class App:\n    @staticmethod\n    def main():\n        print('purelib runs')\n",
    )
    package.add("site-packages/purelib-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: purelib\nVersion: 1.0\n")
    package.add(
        "python-scripts/purelib-old",
        f"#!{PLACEHOLDER}/bin/python\nimport purelib; purelib.App.main()\n",
        0o755,
        placeholder=PLACEHOLDER,
    )
    package.link_json = {
        "noarch": {"type": "python", "entry_points": ["purelib = purelib:App.main"]},
        "package_metadata_version": 1,
    }
    return package


def _text_placeholders() -> CondaPackage:
    held = PLACEHOLDER
    package = CondaPackage("textual", depends=("python",))
    package.add("etc/textual.conf", f"root={held}\nlib={held}/lib:{held}/lib64\n", placeholder=held)
    package.add("bin/textual", f"#!{held}/bin/python -I\nimport sys; print(sys.prefix)\n", 0o755, placeholder=held)
    package.add("bin/textual-sh", f"#!{held}/bin/perl -w\n# {held}\n", 0o775, placeholder=held)
    package.add("bin/textual-plain", f"#!/bin/sh\necho {held}\n", 0o755, placeholder=held)
    package.add("share/textual/latin1", b"caf\xe9 " + held.encode() + b"\n", 0o600, placeholder=held)
    package.add("share/textual/empty")
    package.add("share/textual/read-only", "x\n", 0o444).add("share/textual/soft", symlink="read-only")
    package.add("share/textual/hard", mode=0o444, hardlink="share/textual/read-only")
    package.add("share/textual/dangling", symlink="../../nowhere")
    return package


def _binary_placeholders() -> CondaPackage:
    held = PLACEHOLDER.encode()
    small = b"\x7fELF\0" + held + b"/lib\0" + held + b"/a:" + held + b"/b\0\0tail" + held
    large = random.Random(0).randbytes(1 << 16) + held + b"/share\0" + bytes(1 << 16)
    package = CondaPackage("binary")
    package.add("lib/binary.so", small, 0o755, placeholder=PLACEHOLDER, file_mode="binary")
    return package.add("lib/large.so", large, 0o755, placeholder=PLACEHOLDER, file_mode="binary")


def _activation() -> CondaPackage:
    package = CondaPackage("active", subdir="noarch", noarch="generic")
    package.add("etc/conda/activate.d/10-first.sh", 'export ACTIVE_ROOT="$CONDA_PREFIX/share" ACTIVE_LINES="a\nb"\n')
    package.add(
        "etc/conda/activate.d/20-second.sh",
        'export ACTIVE_NEXT="$ACTIVE_ROOT/$ACTIVE_PLAIN/${UNKNOWN_YET:-none}"\nunset DROPPED\nfalse\n',
    )
    package.add("etc/conda/activate.d/30-third.fish", "set -gx NEVER 1\n")
    package.add("etc/conda/env_vars.d/active.json", '{"ACTIVE_PLAIN": "plain $HOME", "ACTIVE_NUMBER": 3}')
    return package


def _post_link() -> CondaPackage:
    package = CondaPackage("linker")
    package.add("bin/.linker-post-link.sh", 'echo "$PKG_NAME $PKG_VERSION" > "$PREFIX/share/linked"\n', 0o755)
    return package.add("share/linker")
