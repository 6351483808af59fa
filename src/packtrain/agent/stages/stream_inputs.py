"""Inputs with `mode: stream`: the index came with the stage fetch; the steps are told where the samples are to be had,
and have a folder for what they read, as far as the plan's disk or the depot allows."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from packtrain.agent.context import AttemptContext
from packtrain.agent.stages import hardware
from packtrain.agent.steps.variables import to_env_name
from packtrain.plan import Input, Location, Secret
from packtrain.plan.stream_config import STREAM_CONFIG_SUFFIX, STREAM_CONFIG_VARIABLE, StreamConfig
from packtrain.transfer.cache import DownloadCache
from packtrain.transfer.urls import redact_url

_OUTPUT_RESERVE_BYTES = 1 << 30  # of the plan's disk, for outputs
_STAT_BLOCK_BYTES = 512  # what the kernel counts in


@dataclass(frozen=True)
class PreparedStreams:
    variables: dict[str, str]
    extra_mounts: tuple[Path, ...]  # outside of the sandbox, that the steps have to see


@contextmanager
def prepare_streams(context: AttemptContext) -> Iterator[PreparedStreams]:
    """For as long as the steps run. PACKTRAIN_STREAM is set where one input is meant without a doubt."""
    sources = [source for source in context.job.inputs if source.mode == "stream"]
    variables: dict[str, str] = {}
    folders: list[Path] = []
    given_out = 0
    with ExitStack() as stack:
        for source in sources:
            told = _make_stream_config(context, source, stack, given_out)
            given_out += told.cache_limit_bytes
            path = context.sandbox.streams / f"{source.name or 'input'}{STREAM_CONFIG_SUFFIX}"
            told.write(path)
            folders += _external_folders(context, told)
            if source.name:
                variables[f"{STREAM_CONFIG_VARIABLE}_{to_env_name(source.name)}"] = str(path)
            if len(sources) == 1:
                variables[STREAM_CONFIG_VARIABLE] = str(path)
        yield PreparedStreams(variables, tuple(dict.fromkeys(folders)))


def _make_stream_config(
    context: AttemptContext, job_input: Input, stack: ExitStack, allocated_bytes: int
) -> StreamConfig:
    assert job_input.index is not None  # the stage fetch brought it
    index = context.sandbox.input_folder(job_input) / job_input.index.name
    context.sandbox.streams.mkdir(exist_ok=True)
    size = sum(item.size or 0 for item in job_input.files)
    if context.download_cache:
        keep, most = _shared_cache_folder(context.download_cache, job_input, index, size, stack)
    else:
        keep, most = _sandbox_cache_folder(context, size, allocated_bytes)
    if not most:
        context.log.write(f"steps: nothing of {job_input.name or 'the input'} is kept: there is no disk for it")
    archives = tuple(item.locations for item in job_input.files)
    secrets = str(context.secrets.folder) if _has_secrets(archives) else ""
    return StreamConfig(str(index), archives, secrets, str(keep) if most else "", most)


def _shared_cache_folder(
    download_cache: DownloadCache, job_input: Input, index: Path, size_bytes: int, stack: ExitStack
) -> tuple[Path, int]:
    """Shared with other jobs of the same index, and there for later ones."""
    key = hashlib.sha256(b"stream\n" + index.read_bytes()).hexdigest()
    first = job_input.files[0]
    found = stack.enter_context(
        download_cache.dataset_dir(key, f"{first.name} (streamed)", size_bytes, redact_url(first.locations[0].url))
    )
    return found or (Path(), 0)


def _sandbox_cache_folder(context: AttemptContext, size_bytes: int, allocated_bytes: int) -> tuple[Path, int]:
    """What the plan's disk leaves, the machine has, and other inputs were not given; without a figure nothing is kept.
    It goes with the sandbox."""
    promised = context.job.limits.disk_bytes
    if promised is None:
        return Path(), 0
    folder = context.sandbox.streams / "kept"
    room = (
        min(promised - _disk_usage_bytes(context.sandbox.root), hardware.free_disk_bytes(context.sandbox.root))
        - _OUTPUT_RESERVE_BYTES
    )
    room += _disk_usage_bytes(folder) - allocated_bytes  # an attempt before, which was here, may have left some
    return folder, max(0, min(size_bytes, room))


def _disk_usage_bytes(folder: Path) -> int:
    """On the disk: what is kept has holes."""
    found = 0
    for where, _, names in os.walk(folder):
        found += sum(Path(where, name).lstat().st_blocks * _STAT_BLOCK_BYTES for name in names)
    return found


def _has_secrets(archives: tuple[tuple[Location, ...], ...]) -> bool:
    """Whether what it takes to be let in is secret."""
    for ref in (ref for refs in archives for ref in refs):
        keys = (ref.s3.access_key, ref.s3.secret_key, ref.s3.session_token) if ref.s3 else ()
        if any(isinstance(text, Secret) for text in (ref.token, *keys, *(header.value for header in ref.headers))):
            return True
    return False


def _external_folders(context: AttemptContext, config: StreamConfig) -> Iterator[Path]:
    """A container has to be shown these."""
    if config.secrets_dir:
        yield Path(config.secrets_dir)
    if config.cache_dir and context.download_cache:
        yield Path(config.cache_dir)
    creds = os.environ.get("_CONDOR_CREDS")
    if creds and Path(creds).is_dir():
        yield Path(creds).absolute()
