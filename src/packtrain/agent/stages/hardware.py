"""Figures of the machine: memory, disk, GPUs, and what its file system can do.

Pure reading; what the figures mean for a job is decided in `probe`.
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
    index: str
    uuid: str
    name: str
    memory_mb: int
    driver: str
    capability: str = ""  # "" where an old driver does not say


def platform_name() -> str:
    """As the module of this name says it, which takes a while to load, and reads through the interpreter's binary."""
    about = os.uname()
    libc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else ""
    with_libc = f"-with-{libc.replace(' ', '')}" if libc else ""
    return f"{about.sysname}-{about.release}-{about.machine}{with_libc}"


def free_disk_bytes(folder: Path) -> int:
    """Bytes that this user may still write there."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def memory_mb(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What this process may use: the machine's memory, or less where a cgroup limits it."""
    limits = list(_cgroup_limits(proc, cgroups))
    with suppress(OSError, ValueError):
        total = re.search(r"MemTotal:\s*(\d+) kB", (proc / "meminfo").read_text())
        limits += [int(total.group(1)) * 1024] if total else []
    return min(limits) // 2**20 if limits else None


def _cgroup_limits(proc: Path, cgroups: Path) -> Iterator[int]:
    """Limits of this process' groups and all above them; version 1 and 2 name them differently."""
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
        with suppress(OSError, ValueError):  # "max" is no number and no limit
            yield int((folder / file).read_text())
        if folder == root:
            return


def list_gpus(environ: Mapping[str, str]) -> list[GpuInfo]:
    """The GPUs that this process may see; none where there is no NVIDIA driver or it is broken."""
    for query in _GPU_QUERIES:
        answer = _nvidia_smi(environ, f"--query-gpu={query}", "--format=csv,noheader,nounits")
        if answer:
            return filter_visible(parse_gpus(answer), environ.get("CUDA_VISIBLE_DEVICES"))
    return []


def cuda_version(environ: Mapping[str, str]) -> str:
    """The newest CUDA that the driver supports, e.g. "12.4"; "" if it does not say."""
    found = re.search(r"CUDA Version:\s*([\d.]+)", _nvidia_smi(environ))
    return found.group(1) if found else ""


def parse_gpus(text: str) -> list[GpuInfo]:
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [GpuInfo(r[0], r[1], r[2], int(r[3]), *r[4:6]) for r in rows if len(r) >= 5 and r[3].isdigit()]


def filter_visible(candidates: list[GpuInfo], visible_devices: str | None) -> list[GpuInfo]:
    """Those that CUDA_VISIBLE_DEVICES names by number or by (the beginning of) their id."""
    if visible_devices is None or "MIG-" in visible_devices:
        return candidates
    names = [name.strip() for name in visible_devices.split(",") if name.strip()]
    return [gpu for gpu in candidates if any(n == gpu.index or gpu.uuid.startswith(n) for n in names)]


def _nvidia_smi(environ: Mapping[str, str], *arguments: str) -> str:
    """Its output, or "" where it fails. A broken driver makes it hang: subprocess.TimeoutExpired."""
    tool = shutil.which("nvidia-smi", path=environ.get("PATH", "") + _NVIDIA_SMI_PATHS)
    if not tool:
        return ""
    done = subprocess.run([tool, *arguments], capture_output=True, timeout=_NVIDIA_SMI_TIMEOUT_S, check=False)
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def filesystem_limitations(folder: Path) -> list[str]:
    """What the file system of this folder cannot do, in sentences."""
    trial = folder / ".packtrain-trial"
    trial.mkdir(exist_ok=True)
    try:
        return [sentence for sentence, works in _FILESYSTEM_CHECKS.items() if not _is_supported(works, trial)]
    finally:
        shutil.rmtree(trial, ignore_errors=True)


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
    "does not replace files by renaming: half-written files may be seen": _supports_replace,
    "has no symbolic links: archives that contain them cannot be unpacked": _supports_symlinks,
    "does not tell upper from lower case: files whose names differ only in case overwrite each other": _is_case_sensitive,
}
