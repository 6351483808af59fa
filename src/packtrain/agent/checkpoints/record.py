"""Generations of a checkpoint: their names below a destination, their records, which one to go on from. Pure.

    .packtrain/checkpoints/RUN/JOB/EMITTER/GENERATION/NAME            the files, in any order
    .packtrain/checkpoints/RUN/JOB/EMITTER/GENERATION/record.json     last: with it the generation exists
    .packtrain/checkpoints/RUN/JOB/EMITTER/ended.json                 its outputs passed their checks, at this step
    .packtrain/left/EMITTER/NAME                                      other outputs of an attempt that left in time

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

RECORD_VERSION = 1
RECORD = "record.json"
ENDED = "ended.json"
BESIDE = ".packtrain-record.json"
LEFT = ".packtrain/left"
KEPT = 2  # complete generations of one emitter


@dataclass(frozen=True)
class SavedFile:
    name: str  # below the output folder, and below the generation's prefix
    size: int
    sha256: str


@dataclass(frozen=True)
class Record:
    run: str
    job: str
    emitter: str
    generation: int  # 1, 2, … of one emitter
    step: int  # the training's
    epoch: int | None
    path: str  # what the program saved, below the output folder: a file, or a folder of files ("." for all)
    files: tuple[SavedFile, ...]
    time: float  # the emitter's clock, for people

    @property
    def prefix(self) -> str:
        return generation_prefix(self.run, self.job, self.emitter, self.generation)

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def rank(self) -> tuple[int, int, str]:
        """The further training wins, then the newer generation; the rest only makes it the same everywhere."""
        return self.step, self.generation, self.emitter

    def to_json(self) -> str:
        return json.dumps({"version": RECORD_VERSION, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Unknown keys are skipped. Raises FormatError."""
        try:
            raw = json.loads(text)
            return _checked(raw)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FormatError(f"no record of a checkpoint: {text[:80]!r} ({error})") from None


def _checked(raw: dict[str, Any]) -> Record:
    if raw["version"] != RECORD_VERSION:
        raise ValueError(f"it has version {raw['version']}, this packtrain reads {RECORD_VERSION}")
    files = tuple(SavedFile(_inside(f["name"]), _number(f["size"]), str(f["sha256"])) for f in raw["files"])
    if not files:
        raise ValueError("it names no files")
    epoch = None if raw["epoch"] is None else _number(raw["epoch"])
    who = (str(raw["run"]), str(raw["job"]), str(raw["emitter"]), _number(raw["generation"]))
    return Record(*who, _number(raw["step"]), epoch, _saved_at(raw["path"]), files, float(raw["time"]))


def _number(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is no whole number")
    return value


def _inside(name: str) -> str:
    """A name becomes a path on our disk: one that leaves the folder is refused."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(f"{name!r} is no name below the output folder")
    return name


def _saved_at(path: str) -> str:
    """Files beside each other have no other folder than the outputs' own."""
    return path if path == "." else _inside(path)


def ended_json(step: int) -> str:
    return json.dumps({"version": RECORD_VERSION, "step": step}) + "\n"


def ended_step(text: str) -> int:
    """Raises FormatError."""
    try:
        return _number(json.loads(text)["step"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(f"no word of an attempt's end: {text[:80]!r} ({error})") from None


def job_prefix(run: str, job: str) -> str:
    return f".packtrain/checkpoints/{run}/{job}"


def generation_prefix(run: str, job: str, emitter: str, generation: int) -> str:
    return f"{job_prefix(run, job)}/{emitter}/{generation}"


def left_folder(emitter: str) -> str:
    """Where an attempt that left in time puts what it wrote beside its checkpoint."""
    return f"{LEFT}/{emitter}"


def best_first(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: record.rank, reverse=True)
