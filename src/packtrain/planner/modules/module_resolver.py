"""Resolve the modules of `use` steps: a local folder, or a folder of a git repository; then render its template."""

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
from packtrain.planner.modules.module_template import render_module
from packtrain.spec.diagnostics import Diagnostic
from packtrain.spec.load import load_module_text
from packtrain.spec.models.steps import Step
from packtrain.spec.models.workflow import Workflow, WorkflowModule

_CLONE_TIMEOUT_S = 120
_LOCAL_PREFIXES = (".", "/", "~/")
_REFERENCE_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]*")
_COMMIT_PATTERN = re.compile(r"[0-9a-f]{7,40}")
_FILE_NAME = "module.yaml"


@dataclass(frozen=True)
class ResolvedModule:
    """A module and its diagnostics. `module` is None if its file has errors."""

    folder: Path
    module: WorkflowModule | None
    diagnostics: tuple[Diagnostic, ...]
    default_commit: str = ""  # the commit that the default branch is at, if the source names no reference


@dataclass(frozen=True)
class GitSource:
    """A folder of a git repository at a tag, branch or commit."""

    url: str
    folder: str  # "": the top
    reference: str  # "": the default branch


@dataclass(frozen=True)
class _ModuleFolder:
    path: Path
    address: str  # for messages
    default_commit: str = ""


class ModuleResolver:
    """Resolves modules; each source is cloned once per plan."""

    def __init__(self, clones_dir: Path) -> None:
        self._clones_dir = clones_dir
        self._folders: dict[tuple[str, Path], _ModuleFolder] = {}

    def resolve(self, source: str, base_dir: Path, workflow: Workflow, step: Step) -> ResolvedModule:
        """Return the module of a source, relative to `base_dir`, as its template gives it for a step.

        Raises:
            UsageError: The source cannot be fetched, or has no module.yaml.
        """
        key = (source, base_dir)
        if key not in self._folders:
            self._folders[key] = self._find_folder(source, base_dir)
        folder = self._folders[key]
        file = folder.path / _FILE_NAME
        address = f"{folder.address}/{_FILE_NAME}"
        try:
            text = file.read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            raise UsageError(f"{address} cannot be read: {error}") from error
        rendered = render_module(text, address, workflow, step)
        if isinstance(rendered, Diagnostic):
            return ResolvedModule(folder.path, None, (rendered,), folder.default_commit)
        loaded = load_module_text(rendered.text, address, rendered.lines)
        return ResolvedModule(folder.path, loaded.module, loaded.diagnostics, folder.default_commit)

    def _find_folder(self, source: str, base_dir: Path) -> _ModuleFolder:
        if is_local_source(source, base_dir):
            path = resolve_path(base_dir, source)
            if classify_path(path / _FILE_NAME)[0] != FILE:
                raise UsageError(f"the module {source} has no {_FILE_NAME}")
            return _ModuleFolder(path, str(path))
        return self._fetch(source)

    def _fetch(self, source: str) -> _ModuleFolder:
        """Clone the first candidate that exists and has a module.yaml."""
        reasons: list[str] = []
        for candidate in list_git_sources(source):
            clone = self._clones_dir / str(len(list(self._clones_dir.iterdir())))
            try:
                _clone(candidate, clone)
            except UsageError as error:
                reasons.append(f"cannot be fetched: {error}")
                continue
            path = clone / candidate.folder
            is_inside = clone.resolve() in (path.resolve(), *path.resolve().parents)
            if is_inside and classify_path(path / _FILE_NAME)[0] == FILE:
                commit = "" if candidate.reference else _run_git("-C", str(clone), "rev-parse", "HEAD")
                return _ModuleFolder(path, source, commit)
            reasons.append(f"has no {_FILE_NAME}")
        missing = [reason for reason in reasons if reason.startswith("has no")]
        raise UsageError(f"the module {source} {(missing or reasons)[0]}")


def is_local_source(source: str, base_dir: Path) -> bool:
    return source.startswith(_LOCAL_PREFIXES) or classify_path(base_dir / source)[0] == FOLDER


def list_git_sources(source: str) -> list[GitSource]:
    """Return what a source such as `github.com/owner/name/folder@v1` may mean, most likely first. Raises UsageError.

    In a repository of several modules, DeepSquare prefixes tags with the folder. What follows host, owner and name is a
    folder on GitHub, but may be the name of the repository on other hosts.
    """
    address, mark, reference = source.rpartition("@")
    # The @ of user@host begins no reference: what stands before that names more than a host.
    if not mark or "/" not in address.rpartition("://")[2]:
        address, mark, reference = source, "", ""
    if "/" not in address or (mark and not _REFERENCE_PATTERN.fullmatch(reference)):
        raise UsageError(
            f"the module {source} should be a folder, or a git URL, optionally with a folder, tag or commit: "
            "URL/FOLDER@TAG"
        )
    bare = "://" not in address and not address.startswith("git@")
    url = f"https://{address}" if bare else address
    parts = url.split("/", 5)  # https:, "", host, owner, name, folder
    if ".git/" in url:
        repository, _, folder = url.partition(".git/")
        return [GitSource(f"{repository}.git", folder, name) for name in _tag_names(folder, reference)]
    if url.startswith(("https://", "http://")) and len(parts) == 6 and parts[5].strip("/"):
        repository, folder = "/".join(parts[:5]), parts[5].strip("/")
        inside = [GitSource(repository, folder, name) for name in _tag_names(folder, reference)]
        return [*inside, GitSource(url, "", reference)]
    return [GitSource(url, "", reference)]


def _tag_names(folder: str, reference: str) -> list[str]:
    if not reference or not folder or _COMMIT_PATTERN.fullmatch(reference):
        return [reference]
    return [f"{folder}/{reference}", reference]


def _clone(source: GitSource, target: Path) -> None:
    """Clone a repository. Raises UsageError with git's reason."""
    if _COMMIT_PATTERN.fullmatch(source.reference):
        _run_git("clone", "--quiet", "--no-checkout", "--", source.url, str(target))
        _run_git("-C", str(target), "checkout", "--quiet", "--detach", source.reference)
        return
    branch = ("--branch", source.reference) if source.reference else ()
    _run_git("clone", "--quiet", "--depth", "1", *branch, "--", source.url, str(target))


def _run_git(*arguments: str) -> str:
    try:
        completed = subprocess.run(
            ["git", *arguments],
            capture_output=True,
            text=True,
            timeout=_CLONE_TIMEOUT_S,
            env=_noninteractive_env(),
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(str(error)) from error
    if completed.returncode:
        raise UsageError(_last_line(completed.stderr))
    return completed.stdout.strip()


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
