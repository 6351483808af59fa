"""What was fetched stays on this machine when the job goes on in place (exit code 85): the next attempt takes it over.

The inputs of the sandbox are moved to a folder that the engine names (`--reuse-folder`), complete or not at all, and only if
no step changed them; the attempt that moves them back first has them. What a training kept of data that it streams goes
with them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

from packtrain.agent.context import AttemptContext, StageStats
from packtrain.plan.codec import encode

_INPUT_FOLDERS = ("input", "inputs")
_MANIFEST_NAME = "about.json"


def record_inputs_fingerprint(context: AttemptContext) -> None:
    """Remember what the inputs look like, for `keep_inputs` to compare."""
    # Inputs that land among the files of the steps stay with those.
    apart = all(source.folder.split("/")[0] in _INPUT_FOLDERS for source in context.job.inputs)
    if context.reuse_folder is not None and context.job.checkpoint is not None and context.job.inputs and apart:
        context.checkpoint_state.inputs_fingerprint = _inputs_fingerprint(context.sandbox.root)


def save_inputs(context: AttemptContext) -> None:
    """Move them out of the sandbox. Raises OSError, e.g. if the folder is on another disk."""
    mark, target = context.checkpoint_state.inputs_fingerprint, context.reuse_folder
    if not mark or target is None or _inputs_fingerprint(context.sandbox.root) != mark:
        return
    fresh = target.with_name(f"{target.name}.{context.journal.emitter}")
    fresh.mkdir(parents=True)
    try:
        for name in _INPUT_FOLDERS:
            (context.sandbox.root / name).rename(fresh / name)
        if context.sandbox.streams.exists():
            context.sandbox.streams.rename(fresh / context.sandbox.streams.name)
        about = {"inputs": encode(context.job.inputs), "mark": mark}
        (fresh / _MANIFEST_NAME).write_text(json.dumps(about), encoding="utf-8")
        fresh.rename(target)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def restore_inputs(context: AttemptContext, stats: StageStats) -> bool:
    """Whether the inputs are there again, as the attempt before had them."""
    if context.reuse_folder is None or not context.reuse_folder.is_dir():
        return False
    ours = context.sandbox.root / "kept"
    try:
        context.reuse_folder.rename(ours)  # nobody else has them now
        about = json.loads((ours / _MANIFEST_NAME).read_text(encoding="utf-8"))
        good = about["inputs"] == encode(context.job.inputs) and _inputs_fingerprint(ours) == about["mark"]
        return good and _install_inputs(context, ours, about["mark"], stats)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    finally:
        shutil.rmtree(ours, ignore_errors=True)


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
    """Names, sizes and times of all inputs, as one digest."""
    seen = hashlib.sha256()
    for folder in _INPUT_FOLDERS:
        for where, folders, files in os.walk(root / folder):
            folders.sort()
            for name in sorted(files):
                path = Path(where, name)
                with suppress(OSError):
                    status = path.lstat()
                    line = f"{path.relative_to(root)}\0{status.st_size}\0{status.st_mtime_ns}\n"
                    seen.update(line.encode("utf-8", "surrogateescape"))
    return seen.hexdigest()
