"""A real Python 3.9, the oldest version that the agent supports, from Debian 11.

`python -m testbed.python39 -m pytest tests/unit/agent` runs tests with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path

from testbed import debian

# libzstd1: the agent unpacks .conda packages with it, and it must fit to Debian 11's C library.
PACKAGE_SPEC = debian.PackageSpec(
    "bullseye", ("python3.9-minimal", "libpython3.9-minimal", "libpython3.9-stdlib", "libzstd1")
)
# The last versions that support Python 3.9, with all dependencies: not every index lists the supported Python versions,
# and pip evaluates markers such as `python_version < "3.11"` for the Python it runs on.
TOOL_REQUIREMENTS = (
    "pytest==8.3.*",
    "pytest-timeout==2.3.*",
    "pytest-xdist==3.8.*",
    "hypothesis==6.135.*",
    "attrs==26.1.*",
    "exceptiongroup==1.3.*",
    "execnet==2.1.*",
    "iniconfig==2.1.*",
    "packaging==26.*",
    "pluggy==1.6.*",
    "google-crc32c==1.7.*",
    "sortedcontainers==2.4.*",
    "tomli==2.2.*",
    "typing-extensions==4.14.*",
)


def python_path() -> Path:
    """Return the interpreter, installed if needed. It needs no environment variables."""
    folder = debian.cache_dir() / f"python3.9-{zlib.crc32(' '.join(PACKAGE_SPEC.packages).encode()):08x}"
    return debian.install(folder, PACKAGE_SPEC) / "usr/bin/python3.9"


def site_packages_dir() -> Path:
    """Return a folder for PYTHONPATH with pytest, hypothesis and a compiled CRC-32C for Python 3.9."""
    folder = debian.cache_dir() / f"python3.9-site-{zlib.crc32(' '.join(TOOL_REQUIREMENTS).encode()):08x}"
    with debian.file_lock(folder.with_name(folder.name + ".lock")):
        if not folder.exists():
            new = folder.with_name(folder.name + ".new")
            target = ["--target", str(new), "--upgrade", "--python-version", "3.9", "--only-binary=:all:"]
            options = ["-qq", "--no-deps", "--no-warn-conflicts"]
            subprocess.run([sys.executable, "-m", "pip", "install", *options, *target, *TOOL_REQUIREMENTS], check=True)
            new.rename(folder)
    return folder


def python_command() -> tuple[list[str], dict[str, str]]:
    """Return argv and environment variables to run it with pytest, hypothesis and this project's sources."""
    return [str(python_path())], {"PYTHONPATH": f"{site_packages_dir()}:{debian.PROJECT_ROOT / 'src'}"}


def main() -> None:
    argv, variables = python_command()
    os.execve(argv[0], [*argv, *sys.argv[1:]], {**os.environ, **variables})


if __name__ == "__main__":
    main()
