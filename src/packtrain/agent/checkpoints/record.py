"""Generations of a checkpoint: their names below a destination, their records, which one to go on from. Pure.

    .packtrain/checkpoints/RUN/JOB/EMITTER/GENERATION/NAME            the files, in any order
    .packtrain/checkpoints/RUN/JOB/EMITTER/GENERATION/record.json     last: with it the generation exists
    .packtrain/checkpoints/RUN/JOB/EMITTER/completed.json             its outputs passed their checks, at this step
    .packtrain/requeued/EMITTER/NAME                                  other outputs of an attempt that left in time

Where there is one address only: the file at it, and the record at the same address with `.packtrain-record.json`.

docs/formats/checkpoints.md describes the record.
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
COMPLETION_MARKER_NAME = "completed.json"
RECORD_SUFFIX = ".packtrain-record.json"
REQUEUE_PREFIX = ".packtrain/requeued"
MAX_GENERATIONS = 2  # complete generations of one emitter


@dataclass(frozen=True)
class SavedFile:
    name: str  # below the output folder, and below the generation's prefix
    size: int
    sha256: str


@dataclass(frozen=True)
class CheckpointRecord:
    run: str
    job: str
    emitter: str
    generation: int  # 1, 2, … of one emitter
    step: int  # the training's
    epoch: int | None
    path: str  # what the program saved, below the output folder: a file, or a folder of files ("." for all)
    files: tuple[SavedFile, ...]
    saved_at: float  # the emitter's clock, for people

    @property
    def prefix(self) -> str:
        return generation_prefix(self.run, self.job, self.emitter, self.generation)

    @property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def sort_key(self) -> tuple[int, int, str]:
        """The further training wins, then the newer generation; the rest only makes it the same everywhere."""
        return self.step, self.generation, self.emitter

    def to_json(self) -> str:
        return json.dumps({"version": RECORD_VERSION, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> CheckpointRecord:
        """Unknown keys are skipped. Raises FormatError."""
        try:
            raw = json.loads(text)
            return _parse_record(raw)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FormatError(f"no record of a checkpoint: {text[:80]!r} ({error})") from None


def _parse_record(raw: dict[str, Any]) -> CheckpointRecord:
    if raw["version"] != RECORD_VERSION:
        raise ValueError(f"it has version {raw['version']}, this packtrain reads {RECORD_VERSION}")
    files = tuple(
        SavedFile(_check_relative_name(f["name"]), _parse_int(f["size"]), str(f["sha256"])) for f in raw["files"]
    )
    if not files:
        raise ValueError("it names no files")
    epoch = None if raw["epoch"] is None else _parse_int(raw["epoch"])
    who = (str(raw["run"]), str(raw["job"]), str(raw["emitter"]), _parse_int(raw["generation"]))
    return CheckpointRecord(
        *who, _parse_int(raw["step"]), epoch, _check_relative_path(raw["path"]), files, float(raw["saved_at"])
    )


def _parse_int(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is no whole number")
    return value


def _check_relative_name(name: str) -> str:
    """A name becomes a path on our disk: one that leaves the folder is refused."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(f"{name!r} is no name below the output folder")
    return name


def _check_relative_path(path: str) -> str:
    """Files beside each other have no other folder than the outputs' own."""
    return path if path == "." else _check_relative_name(path)


def completion_marker_json(step: int) -> str:
    return json.dumps({"version": RECORD_VERSION, "step": step}) + "\n"


def parse_completion_marker(text: str) -> int:
    """Raises FormatError."""
    try:
        return _parse_int(json.loads(text)["step"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(f"no word of an attempt's end: {text[:80]!r} ({error})") from None


def job_prefix(run: str, job: str) -> str:
    return f".packtrain/checkpoints/{run}/{job}"


def generation_prefix(run: str, job: str, emitter: str, generation: int) -> str:
    return f"{job_prefix(run, job)}/{emitter}/{generation}"


def requeue_folder(emitter: str) -> str:
    """Where an attempt that left in time puts what it wrote beside its checkpoint."""
    return f"{REQUEUE_PREFIX}/{emitter}"


def best_first(records: Iterable[CheckpointRecord]) -> list[CheckpointRecord]:
    return sorted(records, key=lambda record: record.sort_key, reverse=True)
