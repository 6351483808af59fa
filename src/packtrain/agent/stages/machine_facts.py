"""Measure the machine: its memory, its GPUs, and what its file systems cannot do.

The functions know nothing of jobs. The stage `probe` compares what they return with the requirements of the job.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

_NVIDIA_SMI_TIMEOUT_S = 4.0
_NVIDIA_SMI_PATHS = ":/usr/bin:/usr/local/nvidia/bin:/usr/lib/wsl/lib"
_GPU_FIELDS = "index,uuid,name,memory.total,driver_version"
# Drivers before 510 do not know the field compute_cap and refuse the whole query.
_GPU_QUERIES = (_GPU_FIELDS + ",compute_cap", _GPU_FIELDS)


@dataclass(frozen=True)
class GpuInfo:
    """One GPU, as nvidia-smi describes it."""

    index: str
    uuid: str
    name: str
    memory_mb: int
    driver: str
    capability: str = ""  # compute capability, e.g. "8.0"; "" with an old driver


def platform_name() -> str:
    """Return the same text as platform.platform(), without importing that slow module, which scans the interpreter."""
    uname = os.uname()
    libc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else ""
    with_libc = f"-with-{libc.replace(' ', '')}" if libc else ""
    return f"{uname.sysname}-{uname.release}-{uname.machine}{with_libc}"


def memory_mb(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the memory that this process may use: the machine's, or less where a cgroup limits it."""
    limits = list(_cgroup_limits(proc, cgroups))
    with suppress(OSError, ValueError):
        total = re.search(r"MemTotal:\s*(\d+) kB", (proc / "meminfo").read_text())
        limits += [int(total.group(1)) * 1024] if total else []
    return min(limits) // 2**20 if limits else None


def _cgroup_limits(proc: Path, cgroups: Path) -> Iterator[int]:
    """Yield the memory limits of this process's cgroups and their parents, in bytes, for cgroup versions 1 and 2."""
    with suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            if controllers == "":
                yield from _limits_above(cgroups, name, "memory.max")
            elif "memory" in controllers.split(","):
                yield from _limits_above(cgroups / "memory", name, "memory.limit_in_bytes")


def _limits_above(root: Path, name: str, file: str) -> Iterator[int]:
    group = root / name.strip("/")
    for folder in (group, *group.parents):
        with suppress(OSError, ValueError):  # "max" means no limit
            yield int((folder / file).read_text())
        if folder == root:
            return


def list_gpus(environ: Mapping[str, str]) -> list[GpuInfo]:
    """Return the GPUs that this process may use; none if the NVIDIA driver is missing or broken."""
    for query in _GPU_QUERIES:
        table = _nvidia_smi(environ, f"--query-gpu={query}", "--format=csv,noheader,nounits")
        if table:
            return filter_visible(parse_gpus(table), environ.get("CUDA_VISIBLE_DEVICES"))
    return []


def cuda_version(environ: Mapping[str, str]) -> str:
    """Return the newest CUDA version that the driver supports, e.g. "12.4"; "" if it is unknown."""
    match = re.search(r"CUDA Version:\s*([\d.]+)", _nvidia_smi(environ))
    return match.group(1) if match else ""


def parse_gpus(text: str) -> list[GpuInfo]:
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [GpuInfo(r[0], r[1], r[2], int(r[3]), *r[4:6]) for r in rows if len(r) >= 5 and r[3].isdigit()]


def filter_visible(candidates: list[GpuInfo], visible_devices: str | None) -> list[GpuInfo]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES names, by index or by a prefix of the UUID."""
    if visible_devices is None or "MIG-" in visible_devices:
        return candidates
    names = [name.strip() for name in visible_devices.split(",") if name.strip()]
    return [gpu for gpu in candidates if any(n == gpu.index or gpu.uuid.startswith(n) for n in names)]


def _nvidia_smi(environ: Mapping[str, str], *arguments: str) -> str:
    """Return its output, or "" if it fails. Raises subprocess.TimeoutExpired: with a broken driver it hangs."""
    program = shutil.which("nvidia-smi", path=environ.get("PATH", "") + _NVIDIA_SMI_PATHS)
    if not program:
        return ""
    process = subprocess.run([program, *arguments], capture_output=True, timeout=_NVIDIA_SMI_TIMEOUT_S, check=False)
    return process.stdout.decode("utf-8", "replace") if process.returncode == 0 else ""


def filesystem_limitations(folder: Path) -> list[str]:
    """Return what the file system of this folder cannot do, as messages without a subject."""
    test_folder = folder / ".packtrain-fs-test"
    test_folder.mkdir(exist_ok=True)
    try:
        return [message for message, check in _FILESYSTEM_CHECKS.items() if not _is_supported(check, test_folder)]
    finally:
        shutil.rmtree(test_folder, ignore_errors=True)


def _is_supported(check: Callable[[Path], bool], folder: Path) -> bool:
    try:
        return check(folder)
    except OSError:
        return False


def _supports_locks(folder: Path) -> bool:
    with open(folder / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return True


def _supports_replace(folder: Path) -> bool:
    (folder / "old").write_text("old")
    (folder / "new").write_text("new")
    (folder / "new").replace(folder / "old")
    return (folder / "old").read_text() == "new"


def _supports_symlinks(folder: Path) -> bool:
    (folder / "link").symlink_to("target")
    return (folder / "link").is_symlink()


def _is_case_sensitive(folder: Path) -> bool:
    (folder / "CASE").touch()
    return not (folder / "case").exists()


_FILESYSTEM_CHECKS: dict[str, Callable[[Path], bool]] = {
    "has no file locks: programs that lock their files (SQLite, HDF5) may fail": _supports_locks,
    "does not replace files by renaming: programs may read half-written files": _supports_replace,
    "has no symbolic links: archives that contain them cannot be unpacked": _supports_symlinks,
    "ignores case in file names: files whose names differ only in case overwrite each other": _is_case_sensitive,
}
