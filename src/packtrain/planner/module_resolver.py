"""Resolve the modules of `use` steps: a local folder, or a git repository cloned at a tag."""

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
from packtrain.planner.local_paths import FILE, FOLDER, classify_path, resolve_path
from packtrain.spec.diagnostics import Diagnostic
from packtrain.spec.load import load_module_file
from packtrain.spec.models.workflow import WorkflowModule

_CLONE_TIMEOUT_S = 120
_LOCAL_PREFIXES = (".", "/", "~/")
_TAG_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]*")


@dataclass(frozen=True)
class ResolvedModule:
    """A module and its diagnostics. `module` is None if its file has errors."""

    folder: Path
    module: WorkflowModule | None
    diagnostics: tuple[Diagnostic, ...]


class ModuleResolver:
    """Resolves modules; each source is cloned and read once per plan."""

    def __init__(self, clones_dir: Path) -> None:
        self._clones_dir = clones_dir
        self._resolved: dict[tuple[str, Path], ResolvedModule] = {}

    def resolve(self, source: str, base_dir: Path) -> ResolvedModule:
        """Return the module of a source, relative to `base_dir`. Raises UsageError."""
        key = (source, base_dir)
        if key not in self._resolved:
            folder = resolve_path(base_dir, source) if is_local_source(source, base_dir) else self._clone(source)
            if classify_path(folder / "module.yaml")[0] != FILE:
                raise UsageError(f"the module {source} has no module.yaml")
            loaded = load_module_file(folder / "module.yaml")
            self._resolved[key] = ResolvedModule(folder, loaded.module, loaded.diagnostics)
        return self._resolved[key]

    def _clone(self, source: str) -> Path:
        url, tag = split_source(source)
        folder = self._clones_dir / str(len(list(self._clones_dir.iterdir())))
        command = ["git", "clone", "--quiet", "--depth", "1", "--branch", tag, "--", url, str(folder)]
        try:
            completed = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=_CLONE_TIMEOUT_S,
                env=_noninteractive_env(),
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"the module {source} cannot be fetched: {error}") from error
        if completed.returncode:
            raise UsageError(f"the module {source} cannot be fetched: {_last_line(completed.stderr)}")
        return folder


def is_local_source(source: str, base_dir: Path) -> bool:
    return source.startswith(_LOCAL_PREFIXES) or classify_path(base_dir / source)[0] == FOLDER


def split_source(source: str) -> tuple[str, str]:
    """`github.com/owner/name@v1` to an address and a tag. Raises UsageError."""
    address, mark, tag = source.rpartition("@")
    # The @ of user@host is no tag's: what stands before a tag's names more than a host.
    if not mark or "/" not in address.rpartition("://")[2] or not _TAG_PATTERN.fullmatch(tag):
        raise UsageError(f"the module {source} should be a folder, or a git URL with a tag: URL@TAG")
    bare = "://" not in address and not address.startswith("git@")
    return (f"https://{address}" if bare else address), tag


def _noninteractive_env() -> dict[str, str]:
    """Return an environment in which git never prompts."""
    return {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes"}


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "git gave no reason"


@contextlib.contextmanager
def open_module_resolver() -> Iterator[ModuleResolver]:
    """Yield a resolver; its clones are removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="packtrain-modules-") as folder:
        yield ModuleResolver(Path(folder))
