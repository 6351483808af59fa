"""Reuse of inputs: they stay on this machine while the job resumes in place (exit code 85).

The inputs are moved from the sandbox to a folder that the engine names (`--reuse-folder`), completely or not at all,
and only if no step changed them. The next execution moves them back; if several try, the first one gets them. Blocks
that the program cached of streamed inputs are moved as well. Nothing is synced: after a reboot the inputs are fetched
again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

from packtrain.agent.context import AttemptContext, StageStats
from packtrain.fileutil import boot_id, temporary_path
from packtrain.plan.codec import encode

_INPUT_FOLDERS = ("input", "inputs")
_MANIFEST_NAME = "manifest.json"


def record_inputs_fingerprint(context: AttemptContext) -> None:
    """Record the fingerprint of the inputs, so that `save_inputs` can detect changes."""
    # Inputs in other folders are mixed with the files of the steps, so they cannot be reused.
    are_separate = all(job_input.folder.split("/")[0] in _INPUT_FOLDERS for job_input in context.job.inputs)
    if context.reuse_folder is not None and context.job.checkpoint is not None and context.job.inputs and are_separate:
        context.checkpoint_state.inputs_fingerprint = _inputs_fingerprint(context.sandbox.root)


def save_inputs(context: AttemptContext) -> None:
    """Move unchanged inputs to the reuse folder. Raises OSError, e.g. if the folder is on another disk."""
    fingerprint, target = context.checkpoint_state.inputs_fingerprint, context.reuse_folder
    if not fingerprint or target is None or _inputs_fingerprint(context.sandbox.root) != fingerprint:
        return
    staging = temporary_path(target)
    staging.mkdir(parents=True)
    try:
        for name in _INPUT_FOLDERS:
            (context.sandbox.root / name).rename(staging / name)
        if context.sandbox.streams.exists():
            context.sandbox.streams.rename(staging / context.sandbox.streams.name)
        manifest = {"inputs": encode(context.job.inputs), "fingerprint": fingerprint, "boot_id": boot_id()}
        (staging / _MANIFEST_NAME).write_text(json.dumps(manifest), encoding="utf-8")
        staging.rename(target)
    except OSError:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def restore_inputs(context: AttemptContext, stats: StageStats) -> bool:
    """Move the inputs of the previous execution back into the sandbox. Return False if there are none to reuse."""
    if context.reuse_folder is None or not context.reuse_folder.is_dir():
        return False
    taken = context.sandbox.root / "reusable-inputs"
    try:
        context.reuse_folder.rename(taken)  # atomic: no other execution can take them now
        manifest = json.loads((taken / _MANIFEST_NAME).read_text(encoding="utf-8"))
        fingerprint = manifest["fingerprint"]
        is_from_this_boot = bool(boot_id()) and manifest["boot_id"] == boot_id()
        is_same = manifest["inputs"] == encode(context.job.inputs) and _inputs_fingerprint(taken) == fingerprint
        return is_from_this_boot and is_same and _install_inputs(context, taken, fingerprint, stats)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    finally:
        shutil.rmtree(taken, ignore_errors=True)


def _install_inputs(context: AttemptContext, folder: Path, fingerprint: str, stats: StageStats) -> bool:
    for name in _INPUT_FOLDERS:
        shutil.rmtree(context.sandbox.root / name)
        (folder / name).rename(context.sandbox.root / name)
    if (folder / context.sandbox.streams.name).exists():
        (folder / context.sandbox.streams.name).rename(context.sandbox.streams)
    context.checkpoint_state.inputs_fingerprint, context.checkpoint_state.inputs_reused = fingerprint, True
    stats.update(bytes=0, files=0, retries=0, source="reused")
    return True


def _inputs_fingerprint(root: Path) -> str:
    """Return one digest of the names, sizes and modification times of all inputs."""
    digest = hashlib.sha256()
    for folder in _INPUT_FOLDERS:
        for parent, folders, files in os.walk(root / folder):
            folders.sort()
            for name in sorted(files):
                path = Path(parent, name)
                with suppress(OSError):
                    status = path.lstat()
                    line = f"{path.relative_to(root)}\0{status.st_size}\0{status.st_mtime_ns}\n"
                    digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
