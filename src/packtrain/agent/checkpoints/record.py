"""Records of checkpoint generations: object names, the JSON format, and which generation to resume from. Pure.

    .packtrain/checkpoints/RUN/JOB/EMITTER/GENERATION/NAME            the files, in any order
    .packtrain/checkpoints/RUN/JOB/EMITTER/GENERATION/record.json     written last: with it the generation exists
    .packtrain/requeued/EMITTER/NAME                                  other outputs of an attempt that was requeued

A destination that holds a single file has the checkpoint and its record at the same URL with the suffixes
`.packtrain-checkpoint` and `.packtrain-record.json`.

docs/formats/checkpoints.md describes the format.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from packtrain.errors import FormatError

RECORD_VERSION = 2
RECORD_NAME = "record.json"
CHECKPOINT_SUFFIX = ".packtrain-checkpoint"
RECORD_SUFFIX = ".packtrain-record.json"
REQUEUE_PREFIX = ".packtrain/requeued"
MAX_GENERATIONS = 2  # complete generations that one emitter keeps


@dataclass(frozen=True)
class SavedFile:
    name: str  # below the output folder, and below the generation's prefix
    size: int  # bytes
    sha256: str


@dataclass(frozen=True)
class CheckpointRecord:
    run: str
    job: str
    emitter: str
    generation: int  # counts 1, 2, … for each emitter
    step: int  # training step
    epoch: int | None
    path: str  # what the program saved, below the output folder: a file or a folder ("." is the output folder)
    files: tuple[SavedFile, ...]
    saved_at: float  # seconds since 1970 by the emitter's clock, for display only

    @property
    def prefix(self) -> str:
        return generation_prefix(self.run, self.job, self.emitter, self.generation)

    @property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def sort_key(self) -> tuple[int, int, str]:
        """The highest step wins, then the newest generation. The emitter makes the order deterministic."""
        return self.step, self.generation, self.emitter

    def to_json(self) -> str:
        return json.dumps({"version": RECORD_VERSION, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> CheckpointRecord:
        """Parse a record; unknown keys are ignored. Raises FormatError."""
        try:
            raw = json.loads(text)
            return _parse_record(raw)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FormatError(f"not a checkpoint record: {text[:80]!r} ({error})") from None


def _parse_record(raw: dict[str, Any]) -> CheckpointRecord:
    if raw["version"] != RECORD_VERSION:
        raise ValueError(f"it has version {raw['version']}, this packtrain reads {RECORD_VERSION}")
    files = tuple(
        SavedFile(_check_relative_name(f["name"]), _parse_int(f["size"]), str(f["sha256"])) for f in raw["files"]
    )
    if not files:
        raise ValueError("it names no files")
    return CheckpointRecord(
        run=str(raw["run"]),
        job=str(raw["job"]),
        emitter=str(raw["emitter"]),
        generation=_parse_int(raw["generation"]),
        step=_parse_int(raw["step"]),
        epoch=None if raw["epoch"] is None else _parse_int(raw["epoch"]),
        path=_check_relative_path(raw["path"]),
        files=files,
        saved_at=float(raw["saved_at"]),
    )


def _parse_int(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is not an integer")
    return value


def _check_relative_name(name: str) -> str:
    """Reject a name that would be a path outside of the output folder."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(f"{name!r} is not a name below the output folder")
    return name


def _check_relative_path(path: str) -> str:
    """Accept "." too: it is the common folder of several files at the top of the output folder."""
    return path if path == "." else _check_relative_name(path)


def job_prefix(run: str, job: str) -> str:
    return f".packtrain/checkpoints/{run}/{job}"


def generation_prefix(run: str, job: str, emitter: str, generation: int) -> str:
    return f"{job_prefix(run, job)}/{emitter}/{generation}"


def requeue_folder(emitter: str) -> str:
    """Return the prefix below which a requeued attempt stores its outputs other than the checkpoint."""
    return f"{REQUEUE_PREFIX}/{emitter}"


def best_first(records: Iterable[CheckpointRecord]) -> list[CheckpointRecord]:
    return sorted(records, key=lambda record: record.sort_key, reverse=True)
