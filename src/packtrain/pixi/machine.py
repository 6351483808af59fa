"""What this machine has of the things that packages need, and which of their requirements it does not meet."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Mapping
from pathlib import Path

from packtrain.errors import FailedError
from packtrain.plan import MachineRequirements

_LEVEL = re.compile(r"x86_64_v([1-4])")
# The flags in /proc/cpuinfo that each level of x86-64 adds.
_LEVEL_FLAGS = {
    2: {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"},
    3: {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"},
    4: {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}


def glibc_version(environ: Mapping[str, str]) -> str:
    """Return the version of the C library, or "" if it is not glibc. CONDA_OVERRIDE_GLIBC replaces it, as in conda."""
    text = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else ""
    return environ.get("CONDA_OVERRIDE_GLIBC") or (text or "").partition(" ")[2]


def linux_version() -> str:
    """Return the version of the kernel, e.g. "5.14.0"."""
    match = re.match(r"[\d.]+", os.uname().release)
    return match[0].rstrip(".") if match else ""


def driver_cuda_version(environ: Mapping[str, str]) -> str:
    """Return the newest CUDA version that the NVIDIA driver supports; "" without a driver. It may hang.

    It asks the driver's library, because some containers have no nvidia-smi. CONDA_OVERRIDE_CUDA replaces it, as in
    conda.
    """
    if "CONDA_OVERRIDE_CUDA" in environ:
        return environ["CONDA_OVERRIDE_CUDA"]
    number = ctypes.c_int()
    with contextlib.suppress(OSError, AttributeError):
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number)) == 0:
            return f"{number.value // 1000}.{number.value % 1000 // 10}"
    return ""


def cpu_level(cpuinfo: Path = Path("/proc/cpuinfo")) -> int | None:
    """Return the level of x86-64 (1 to 4) that the CPU has, or None if that is unknown."""
    try:
        match = re.search(r"^flags\s*:(.*)$", cpuinfo.read_text(), re.MULTILINE)
    except OSError:
        return None
    if match is None or os.uname().machine != "x86_64":
        return None
    level, flags = 1, set(match.group(1).split())
    while level + 1 in _LEVEL_FLAGS and flags >= _LEVEL_FLAGS[level + 1]:
        level += 1
    return level


def check_requirements(requires: MachineRequirements, environ: Mapping[str, str], cuda_version: str) -> None:
    """Compare this machine with what an environment needs.

    Raises:
        FailedError: The GPU's driver is missing or too old (gpu_unusable); something else is (environment_unsupported).
    """
    if requires.min_cuda and not _is_at_least(cuda_version, requires.min_cuda):
        found = f"its driver supports CUDA {cuda_version}" if cuda_version else "it has no NVIDIA driver"
        raise FailedError(
            "gpu_unusable",
            f"the Pixi environment needs a driver for CUDA {requires.min_cuda} or newer, but {found}; use a node "
            "with a newer driver, or lock packages for an older CUDA (`system-requirements` in the manifest)",
        )
    figures = (
        ("glibc", glibc_version(environ), requires.min_glibc),
        ("Linux", linux_version(), requires.min_linux),
    )
    for name, found, needed in figures:
        if needed and not _is_at_least(found, needed):
            raise FailedError(
                "environment_unsupported",
                f"the Pixi environment needs {name} {needed} or newer, but this machine has "
                f"{found or 'another C library'}; run elsewhere, or use an image of the environment",
            )
    _check_cpu_level(requires.archspec, cpu_level())


def _check_cpu_level(archspec: str, level: int | None) -> None:
    match = _LEVEL.fullmatch(archspec)  # other names are not compared: they are those of single models
    if match and level is not None and level < int(match.group(1)):
        raise FailedError(
            "environment_unsupported",
            f"the Pixi environment needs a CPU of the level x86_64_v{match.group(1)}, but this one has the level "
            f"x86_64_v{level}; run elsewhere, or lock packages for older CPUs",
        )


def _is_at_least(found: str, needed: str) -> bool:
    """Compare versions as numbers, whatever their lengths: 2.28 is at least 2.28.0."""
    numbers = [[int(part) for part in re.findall(r"\d+", text)] for text in (found, needed)]
    length = max(map(len, numbers))
    have, need = (one + [0] * (length - len(one)) for one in numbers)
    return bool(found) and have >= need
