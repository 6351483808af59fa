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
_PASSED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
_PASSED_TLS = (
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
)
_PASSED_APPTAINER = ("APPTAINER_CACHEDIR", "APPTAINER_TMPDIR")  # not its DOCKER_PASSWORD
_PASSED_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "PACKTRAIN_PYTHON")


@functools.cache
def capabilities() -> Capabilities:
    return Capabilities(
        name="local",
        containers=shutil.which("apptainer") is not None,
        cpus=len(os.sched_getaffinity(0)),
        memory_mb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        gpus=len(gpu_names()),
    )


def visible_gpus(allowed: str | None, found: int) -> list[str]:
    """The names by which CUDA knows them; `allowed` is the person's own CUDA_VISIBLE_DEVICES."""
    if allowed is None or not found:
        return [str(number) for number in range(found)]
    return [name.strip() for name in allowed.split(",") if name.strip()]


def gpu_names() -> list[str]:
    return visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), _count_gpus())


@functools.cache
def _count_gpus() -> int:
    if shutil.which("nvidia-smi") is None:
        return 0
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in listing.stdout.splitlines())


def job_environment(person: Mapping[str, str], gpus: Sequence[str]) -> dict[str, str]:
    """A job sees the GPUs that it asked for, and none if it asked for none."""
    named = {k: v for k, v in person.items() if k in (*_PASSED, *_PASSED_TLS, *_PASSED_APPTAINER)}
    prefixed = {k: v for k, v in person.items() if k.startswith(_PASSED_PREFIXES)}
    return {**named, **prefixed, "CUDA_VISIBLE_DEVICES": ",".join(gpus)}


def depot_options(person: Mapping[str, str]) -> list[str]:
    """For the agent. Off unless asked for: a second copy of all data that nobody knows of fills disks."""
    folder, cap = person.get("PACKTRAIN_DEPOT", ""), person.get("PACKTRAIN_DEPOT_CAP", "")
    if not folder:
        return []
    return ["--depot", str(Path(folder).absolute()), *(["--depot-cap", cap] if cap.isdigit() else [])]
