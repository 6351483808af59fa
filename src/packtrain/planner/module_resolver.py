"""Modules that `use` names: found in a folder, or cloned from a git address at a tag, when planned."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packtrain.errors import UsageError
from packtrain.planner.local_paths import FILE, FOLDER, absolute, look
from packtrain.spec.diagnostics import Problem
from packtrain.spec.load import load_module
from packtrain.spec.models.workflow import Module

_CLONE_LIMIT_S = 120
_LOCAL = (".", "/", "~/")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]*")


@dataclass(frozen=True)
class FoundModule:
    """`module` is None when its file has errors; they are among the problems."""

    folder: Path
    module: Module | None
    problems: tuple[Problem, ...]


class Modules:
    """Each source is fetched and read once for a plan."""

    def __init__(self, clones: Path) -> None:
        self._clones = clones
        self._found: dict[tuple[str, Path], FoundModule] = {}

    def get(self, source: str, where: Path) -> FoundModule:
        """The module of a source, relative to the folder `where`. Raises UsageError if there is none."""
        key = (source, where)
        if key not in self._found:
            folder = absolute(where, source) if is_local(source, where) else self._clone(source)
            if look(folder / "module.yaml")[0] != FILE:
                raise UsageError(f"the module {source} has no module.yaml")
            loaded = load_module(folder / "module.yaml")
            self._found[key] = FoundModule(folder, loaded.module, loaded.problems)
        return self._found[key]

    def _clone(self, source: str) -> Path:
        address, tag = split_source(source)
        folder = self._clones / str(len(list(self._clones.iterdir())))
        command = ["git", "clone", "--quiet", "--depth", "1", "--branch", tag, "--", address, str(folder)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_CLONE_LIMIT_S, env=_quiet(), stdin=subprocess.DEVNULL
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"the module {source} cannot be fetched: {error}") from error
        if done.returncode:
            raise UsageError(f"the module {source} cannot be fetched: {_last_line(done.stderr)}")
        return folder


def is_local(source: str, where: Path) -> bool:
    return source.startswith(_LOCAL) or look(where / source)[0] == FOLDER


def split_source(source: str) -> tuple[str, str]:
    """`github.com/owner/name@v1` to an address and a tag. Raises UsageError."""
    address, mark, tag = source.rpartition("@")
    # The @ of user@host is no tag's: what stands before a tag's names more than a host.
    if not mark or "/" not in address.rpartition("://")[2] or not _TAG.fullmatch(tag):
        raise UsageError(f"the module {source} should be a folder, or a git address with a tag: ADDRESS@TAG")
    bare = "://" not in address and not address.startswith("git@")
    return (f"https://{address}" if bare else address), tag


def _quiet() -> dict[str, str]:
    """Never ask at the terminal: planning may happen without one."""
    return {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes"}


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "git gave no reason"


@contextlib.contextmanager
def opened() -> Iterator[Modules]:
    """Modules whose clones are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="packtrain-modules-") as folder:
        yield Modules(Path(folder))
