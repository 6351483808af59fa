"""Inputs with `mode: stream`: write the configuration files from which the program learns how to read its samples.

The stage `fetch` downloaded the index. Each configuration names the index, the addresses of the archives, and a folder
in which the program may cache what it reads, as far as the job's disk limit or the download cache allows.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from packtrain.agent.context import AttemptContext
from packtrain.agent.steps.variables import to_env_name
from packtrain.fileutil import free_bytes
from packtrain.plan import Input, Location, Secret
from packtrain.plan.stream_config import STREAM_CONFIG_SUFFIX, STREAM_CONFIG_VARIABLE, StreamConfig
from packtrain.transfer.cache import DownloadCache
from packtrain.transfer.urls import redact_url

_OUTPUT_RESERVE_BYTES = 1 << 30  # part of the job's disk limit that is left for outputs
_STAT_BLOCK_BYTES = 512  # unit of st_blocks


@dataclass(frozen=True)
class PreparedStreams:
    """What the steps need in order to stream their inputs."""

    variables: dict[str, str]
    extra_mounts: tuple[Path, ...]  # folders outside the sandbox that a container must mount


@contextmanager
def prepare_streams(context: AttemptContext) -> Iterator[PreparedStreams]:
    """Prepare the streamed inputs for as long as the steps run.

    PACKTRAIN_STREAM_NAME is set for each named input, PACKTRAIN_STREAM if there is exactly one streamed input.
    """
    job_inputs = [job_input for job_input in context.job.inputs if job_input.mode == "stream"]
    variables: dict[str, str] = {}
    folders: list[Path] = []
    allocated_bytes = 0
    with ExitStack() as stack:
        for job_input in job_inputs:
            config = _make_stream_config(context, job_input, stack, allocated_bytes)
            allocated_bytes += config.cache_limit_bytes
            path = context.sandbox.streams / f"{job_input.name or 'input'}{STREAM_CONFIG_SUFFIX}"
            config.write(path)
            folders += _external_folders(context, config)
            if job_input.name:
                variables[f"{STREAM_CONFIG_VARIABLE}_{to_env_name(job_input.name)}"] = str(path)
            if len(job_inputs) == 1:
                variables[STREAM_CONFIG_VARIABLE] = str(path)
        yield PreparedStreams(variables, tuple(dict.fromkeys(folders)))


def _make_stream_config(
    context: AttemptContext, job_input: Input, stack: ExitStack, allocated_bytes: int
) -> StreamConfig:
    assert job_input.index is not None  # the stage fetch failed without it
    index = context.sandbox.input_folder(job_input) / job_input.index.name
    context.sandbox.streams.mkdir(exist_ok=True)
    size_bytes = sum(remote_file.size or 0 for remote_file in job_input.files)
    if context.download_cache:
        cache_dir, limit_bytes = _shared_cache_folder(context.download_cache, job_input, index, size_bytes, stack)
    else:
        cache_dir, limit_bytes = _sandbox_cache_folder(context, size_bytes, allocated_bytes)
    if not limit_bytes:
        name = job_input.name or "the input"
        context.log.write(f"steps: the samples of {name} are not cached: there is no disk space for them")
    archives = tuple(remote_file.locations for remote_file in job_input.files)
    secrets_dir = str(context.secrets.folder) if _has_secrets(archives) else ""
    return StreamConfig(str(index), archives, secrets_dir, str(cache_dir) if limit_bytes else "", limit_bytes)


def _shared_cache_folder(
    download_cache: DownloadCache, job_input: Input, index: Path, size_bytes: int, stack: ExitStack
) -> tuple[Path, int]:
    """Return a folder in the download cache that all jobs with the same index share, and its limit in bytes."""
    key = hashlib.sha256(b"stream\n" + index.read_bytes()).hexdigest()
    first = job_input.files[0]
    folder_and_limit = stack.enter_context(
        download_cache.dataset_dir(key, f"{first.name} (streamed)", size_bytes, redact_url(first.locations[0].url))
    )
    return folder_and_limit or (Path(), 0)


def _sandbox_cache_folder(context: AttemptContext, size_bytes: int, allocated_bytes: int) -> tuple[Path, int]:
    """Return a folder in the sandbox and its limit in bytes; the limit is 0 if the job has no disk limit.

    The limit is what the job's disk limit and the machine's free disk leave after outputs and other streamed inputs.
    """
    disk_bytes = context.job.limits.disk_bytes
    if disk_bytes is None:
        return Path(), 0
    folder = context.sandbox.streams / "cache"
    unused_bytes = disk_bytes - _disk_usage_bytes(context.sandbox.root)
    available_bytes = min(unused_bytes, free_bytes(context.sandbox.root)) - _OUTPUT_RESERVE_BYTES
    # The folder may hold blocks of the previous execution, which count as available.
    available_bytes += _disk_usage_bytes(folder) - allocated_bytes
    return folder, max(0, min(size_bytes, available_bytes))


def _disk_usage_bytes(folder: Path) -> int:
    """Return the allocated size of all files, which is less than their length if they have holes."""
    total = 0
    for parent, _, names in os.walk(folder):
        total += sum(Path(parent, name).lstat().st_blocks * _STAT_BLOCK_BYTES for name in names)
    return total


def _has_secrets(archives: tuple[tuple[Location, ...], ...]) -> bool:
    """Return whether any location has a secret among its credentials."""
    for location in (location for locations in archives for location in locations):
        s3 = location.s3
        keys = (s3.access_key, s3.secret_key, s3.session_token) if s3 else ()
        headers = (header.value for header in location.headers)
        if any(isinstance(text, Secret) for text in (location.token, *keys, *headers)):
            return True
    return False


def _external_folders(context: AttemptContext, config: StreamConfig) -> Iterator[Path]:
    """Yield the folders outside the sandbox that a container must mount."""
    if config.secrets_dir:
        yield Path(config.secrets_dir)
    if config.cache_dir and context.download_cache:
        yield Path(config.cache_dir)
    creds = os.environ.get("_CONDOR_CREDS")
    if creds and Path(creds).is_dir():
        yield Path(creds).absolute()
