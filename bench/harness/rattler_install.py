"""Install a locked environment with Pixi's own libraries, as `pixi install` does: conda packages, then wheels.

python bench/harness/rattler_install.py LOCK ENVIRONMENT PREFIX CACHE WHEEL_URL…     (prints the seconds)
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import rattler


def main(lock_path: str, environment: str, prefix: Path, cache: Path, *wheel_urls: str) -> None:
    started_at = time.monotonic()
    locked = dict(rattler.LockFile.from_path(Path(lock_path)).environments())[environment]
    (platform,) = locked.platforms()
    records = locked.conda_repodata_records_for_platform(platform)
    asyncio.run(rattler.install(records, target_prefix=prefix, cache_dir=cache / "rattler", show_progress=False))
    options = ("--quiet", "--no-deps", "--link-mode", "copy", "--cache-dir", str(cache / "uv"))
    uv = Path(sys.executable).with_name("uv")
    subprocess.run((uv, "pip", "install", *options, "--python", prefix / "bin/python", *wheel_urls), check=True)
    print(time.monotonic() - started_at)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]), *sys.argv[5:])
