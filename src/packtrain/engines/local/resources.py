"""What this machine has, and which of a person's variables a job may see."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from packtrain.engines.api import Capabilities

# A job sees only what it would also see in a pool, so that what works here works there, and a
# secret in the person's shell does not reach every program.
_ENV_NAMES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
_ENV_NETWORK_NAMES = (
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
)
_ENV_APPTAINER_NAMES = ("APPTAINER_CACHEDIR", "APPTAINER_TMPDIR")  # not its DOCKER_PASSWORD
_ENV_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "PACKTRAIN_PYTHON")


@functools.cache
def capabilities() -> Capabilities:
    return Capabilities(
        name="local",
        supports_containers=shutil.which("apptainer") is not None,
        cpus=len(os.sched_getaffinity(0)),
        memory_mb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        gpus=len(gpu_ids()),
    )


def visible_gpu_ids(cuda_visible_devices: str | None, n_gpus: int) -> list[str]:
    """The names by which CUDA knows them; `allowed` is the person's own CUDA_VISIBLE_DEVICES."""
    if cuda_visible_devices is None or not n_gpus:
        return [str(number) for number in range(n_gpus)]
    return [name.strip() for name in cuda_visible_devices.split(",") if name.strip()]


def gpu_ids() -> list[str]:
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


def job_environment(user_env: Mapping[str, str], visible_gpus: Sequence[str]) -> dict[str, str]:
    """A job sees the GPUs that it asked for, and none if it asked for none."""
    named = {k: v for k, v in user_env.items() if k in (*_ENV_NAMES, *_ENV_NETWORK_NAMES, *_ENV_APPTAINER_NAMES)}
    prefixed = {k: v for k, v in user_env.items() if k.startswith(_ENV_PREFIXES)}
    return {**named, **prefixed, "CUDA_VISIBLE_DEVICES": ",".join(visible_gpus)}


def cache_options(user_env: Mapping[str, str]) -> list[str]:
    """For the agent. Off unless asked for: a second copy of all data that nobody knows of fills disks."""
    folder, cap = user_env.get("PACKTRAIN_CACHE", ""), user_env.get("PACKTRAIN_CACHE_LIMIT", "")
    if not folder:
        return []
    return ["--cache", str(Path(folder).absolute()), *(["--cache-limit", cap] if cap.isdigit() else [])]
