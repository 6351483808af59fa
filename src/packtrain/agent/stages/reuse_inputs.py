"""What was fetched stays on this machine when the job goes on in place (exit code 85): the next attempt takes it over.

The inputs of the sandbox are moved to a folder that the engine names (`--keep`), complete or not at all, and only if
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

from packtrain.agent.context import Context, Tally
from packtrain.plan.codec import encode

_FOLDERS = ("input", "inputs")
_ABOUT = "about.json"


def note_inputs(context: Context) -> None:
    """Remember what the inputs look like, for `keep_inputs` to compare."""
    # Inputs that land among the files of the steps stay with those.
    apart = all(source.folder.split("/")[0] in _FOLDERS for source in context.job.inputs)
    if context.keep is not None and context.job.checkpoint is not None and context.job.inputs and apart:
        context.saved.inputs_mark = _mark(context.box.root)


def keep_inputs(context: Context) -> None:
    """Move them out of the sandbox. Raises OSError, e.g. if the folder is on another disk."""
    mark, target = context.saved.inputs_mark, context.keep
    if not mark or target is None or _mark(context.box.root) != mark:
        return
    fresh = target.with_name(f"{target.name}.{context.journal.emitter}")
    fresh.mkdir(parents=True)
    try:
        for name in _FOLDERS:
            (context.box.root / name).rename(fresh / name)
        if context.box.streams.exists():
            context.box.streams.rename(fresh / context.box.streams.name)
        about = {"inputs": encode(context.job.inputs), "mark": mark}
        (fresh / _ABOUT).write_text(json.dumps(about), encoding="utf-8")
        fresh.rename(target)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def take_back(context: Context, tally: Tally) -> bool:
    """Whether the inputs are there again, as the attempt before had them."""
    if context.keep is None or not context.keep.is_dir():
        return False
    ours = context.box.root / "kept"
    try:
        context.keep.rename(ours)  # nobody else has them now
        about = json.loads((ours / _ABOUT).read_text(encoding="utf-8"))
        good = about["inputs"] == encode(context.job.inputs) and _mark(ours) == about["mark"]
        return good and _put_in_place(context, ours, about["mark"], tally)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    finally:
        shutil.rmtree(ours, ignore_errors=True)


def _put_in_place(context: Context, ours: Path, mark: str, tally: Tally) -> bool:
    for name in _FOLDERS:
        shutil.rmtree(context.box.root / name)
        (ours / name).rename(context.box.root / name)
    if (ours / context.box.streams.name).exists():
        (ours / context.box.streams.name).rename(context.box.streams)
    context.saved.inputs_mark, context.saved.inputs_kept = mark, True
    tally.update(bytes=0, files=0, retries=0, source="kept by the attempt before")
    return True


def _mark(root: Path) -> str:
    """Names, sizes and times of all inputs, as one digest."""
    seen = hashlib.sha256()
    for folder in _FOLDERS:
        for where, folders, files in os.walk(root / folder):
            folders.sort()
            for name in sorted(files):
                path = Path(where, name)
                with suppress(OSError):
                    status = path.lstat()
                    line = f"{path.relative_to(root)}\0{status.st_size}\0{status.st_mtime_ns}\n"
                    seen.update(line.encode("utf-8", "surrogateescape"))
    return seen.hexdigest()
