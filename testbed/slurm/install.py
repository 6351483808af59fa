"""Slurm's daemons and commands, and MariaDB for slurmdbd, from Debian packages in a folder."""

from __future__ import annotations

from pathlib import Path

from testbed import debian

OLDEST, NEWEST = "22.05", "26.05"
SUITES = {"22.05": "bookworm", "24.11": "trixie", "26.05": "forky"}
PLUGIN_DIR = "usr/lib/x86_64-linux-gnu/slurm-wlm"  # also has libslurmfull.so
_SLURM_PACKAGES = (
    "slurmctld", "slurmd", "slurm-client", "slurmdbd", "slurm-wlm-basic-plugins", "slurm-wlm-mysql-plugin", "munge",
)  # fmt: skip
# The resolver skips libraries of system services, but slurmstepd and mariadbd load these.
_SERVICE_LIBRARIES = ("libpam0g", "libaudit1", "libcap-ng0", "libsystemd0")
_MARIADB_PACKAGES = ("mariadb-server-core", "mariadb-client-core")


def slurm_dir(version: str) -> Path:
    """Return the folder of a Slurm version, a key of SUITES; installed if needed."""
    packages = debian.PackageSpec(
        SUITES[version], _SLURM_PACKAGES + _SERVICE_LIBRARIES, _link_plain_names, library_dirs=(PLUGIN_DIR,)
    )
    return debian.install(debian.cache_dir() / f"slurm-{version}", packages)


def mariadb_dir() -> Path:
    """Return the folder of MariaDB, installed if needed."""
    packages = debian.PackageSpec("bookworm", _MARIADB_PACKAGES + _SERVICE_LIBRARIES)
    return debian.install(debian.cache_dir() / "mariadb", packages)


def _link_plain_names(new: Path, final: Path) -> None:
    """Link `slurmd` to Debian's `slurmd-wlm`: the daemons find out from their name which daemon they are."""
    for program in new.glob("usr/*bin/*-wlm"):
        plain = program.with_name(program.name.removesuffix("-wlm"))
        if not plain.exists():
            plain.symlink_to(program.name)
