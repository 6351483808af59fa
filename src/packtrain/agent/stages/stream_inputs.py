"""Inputs with `mode: stream`: the index came with the stage fetch; the steps are told where the samples are to be had,
and have a folder for what they read, as far as the plan's disk or the depot allows."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from packtrain.agent.context import Context
from packtrain.agent.stages import hardware
from packtrain.agent.steps.variables import shout
from packtrain.plan import Input, Ref, Secret
from packtrain.plan.stream_config import SUFFIX, VARIABLE, Given
from packtrain.transfer.cache import Depot
from packtrain.transfer.urls import shown

_SPARE = 1 << 30  # of the plan's disk, for outputs
_BLOCK = 512  # what the kernel counts in


@dataclass(frozen=True)
class Streams:
    variables: dict[str, str]
    folders: tuple[Path, ...]  # outside of the sandbox, that the steps have to see


@contextmanager
def streams_of(context: Context) -> Iterator[Streams]:
    """For as long as the steps run. PACKTRAIN_STREAM is set where one input is meant without a doubt."""
    sources = [source for source in context.job.inputs if source.mode == "stream"]
    variables: dict[str, str] = {}
    folders: list[Path] = []
    given_out = 0
    with ExitStack() as stack:
        for source in sources:
            told = _given(context, source, stack, given_out)
            given_out += told.keep_bytes
            path = context.box.streams / f"{source.name or 'input'}{SUFFIX}"
            told.write(path)
            folders += _outside(context, told)
            if source.name:
                variables[f"{VARIABLE}_{shout(source.name)}"] = str(path)
            if len(sources) == 1:
                variables[VARIABLE] = str(path)
        yield Streams(variables, tuple(dict.fromkeys(folders)))


def _given(context: Context, source: Input, stack: ExitStack, given_out: int) -> Given:
    assert source.index is not None  # the stage fetch brought it
    index = context.box.folder_of(source) / source.index.name
    context.box.streams.mkdir(exist_ok=True)
    size = sum(item.size or 0 for item in source.items)
    if context.depot:
        keep, most = _in_depot(context.depot, source, index, size, stack)
    else:
        keep, most = _in_sandbox(context, size, given_out)
    if not most:
        context.log.line(f"steps: nothing of {source.name or 'the input'} is kept: there is no disk for it")
    archives = tuple(item.sources for item in source.items)
    secrets = str(context.secrets.folder) if _secrets(archives) else ""
    return Given(str(index), archives, secrets, str(keep) if most else "", most)


def _in_depot(depot: Depot, source: Input, index: Path, size: int, stack: ExitStack) -> tuple[Path, int]:
    """Shared with other jobs of the same index, and there for later ones."""
    key = hashlib.sha256(b"stream\n" + index.read_bytes()).hexdigest()
    first = source.items[0]
    found = stack.enter_context(depot.shelf(key, f"{first.name} (streamed)", size, shown(first.sources[0].url)))
    return found or (Path(), 0)


def _in_sandbox(context: Context, size: int, given_out: int) -> tuple[Path, int]:
    """What the plan's disk leaves, the machine has, and other inputs were not given; without a figure nothing is kept.
    It goes with the sandbox."""
    promised = context.job.limits.disk_bytes
    if promised is None:
        return Path(), 0
    folder = context.box.streams / "kept"
    room = min(promised - _used(context.box.root), hardware.disk_free(context.box.root)) - _SPARE
    room += _used(folder) - given_out  # an attempt before, which was here, may have left some
    return folder, max(0, min(size, room))


def _used(folder: Path) -> int:
    """On the disk: what is kept has holes."""
    found = 0
    for where, _, names in os.walk(folder):
        found += sum(Path(where, name).lstat().st_blocks * _BLOCK for name in names)
    return found


def _secrets(archives: tuple[tuple[Ref, ...], ...]) -> bool:
    """Whether what it takes to be let in is secret."""
    for ref in (ref for refs in archives for ref in refs):
        keys = (ref.s3.access_key, ref.s3.secret_key, ref.s3.session_token) if ref.s3 else ()
        if any(isinstance(text, Secret) for text in (ref.token, *keys, *(header.value for header in ref.headers))):
            return True
    return False


def _outside(context: Context, told: Given) -> Iterator[Path]:
    """A container has to be shown these."""
    if told.secrets:
        yield Path(told.secrets)
    if told.keep and context.depot:
        yield Path(told.keep)
    creds = os.environ.get("_CONDOR_CREDS")
    if creds and Path(creds).is_dir():
        yield Path(creds).absolute()
