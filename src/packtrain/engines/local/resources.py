"""Detects the resources of this machine."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from packtrain.engines.api import Capabilities


@functools.cache
def capabilities() -> Capabilities:
    """Return the resources of this machine."""
    return Capabilities(
        name="local",
        supports_containers=shutil.which("apptainer") is not None,
        cpus=len(os.sched_getaffinity(0)),
        memory_mb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        gpus=len(gpu_ids()),
    )


def visible_gpu_ids(cuda_visible_devices: str | None, n_gpus: int) -> list[str]:
    """Return CUDA's names of the GPUs that the user may use.

    Args:
        cuda_visible_devices: The user's CUDA_VISIBLE_DEVICES, or None if it is not set.
        n_gpus: Number of GPUs of this machine.
    """
    if cuda_visible_devices is None or not n_gpus:
        return [str(number) for number in range(n_gpus)]
    return [name.strip() for name in cuda_visible_devices.split(",") if name.strip()]


def gpu_ids() -> list[str]:
    """Return CUDA's names of this machine's GPUs."""
    return visible_gpu_ids(os.environ.get("CUDA_VISIBLE_DEVICES"), _count_gpus())


@functools.cache
def _count_gpus() -> int:
    if shutil.which("nvidia-smi") is None:
        return 0
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in listing.stdout.splitlines())


def cache_options(user_env: Mapping[str, str]) -> list[str]:
    """Return the agent's options for the download cache.

    The cache is off by default, because it stores a second copy of all data.
    """
    folder, limit = user_env.get("PACKTRAIN_CACHE", ""), user_env.get("PACKTRAIN_CACHE_LIMIT", "")
    if not folder:
        return []
    return ["--cache", str(Path(folder).absolute()), *(["--cache-limit", limit] if limit.isdigit() else [])]
