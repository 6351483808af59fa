"""Where an attempt stores its outputs until they are accepted, and the manifest that lists them. Pure.

    .packtrain/outputs/RUN/JOB/EMITTER/files/NAME        the outputs, in any order
    .packtrain/outputs/RUN/JOB/EMITTER/manifest.jsonl    written last: with it the outputs are complete
    .packtrain/outputs/RUN/JOB/EMITTER/synced.jsonl      finished files while the steps run (continuousOutputSync)

docs/formats/outputs.md describes the format.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from packtrain.errors import FormatError
from packtrain.plan.run_folder import PACKTRAIN_FOLDER

MANIFEST_VERSION = 1
MANIFEST_NAME = "manifest.jsonl"
SYNC_LIST_NAME = "synced.jsonl"


def staging_folder(run: str, job: str, emitter: str = "") -> str:
    """Return the folder, below a destination, of the outputs of one attempt; without an emitter, of all attempts."""
    return f"{PACKTRAIN_FOLDER}/outputs/{run}/{job}" + (f"/{emitter}" if emitter else "")


def staged_name(run: str, job: str, emitter: str, name: str) -> str:
    """Return the name of an output, below a destination, until it is accepted."""
    return f"{staging_folder(run, job, emitter)}/files/{name}"


@dataclass(frozen=True)
class ManifestEntry:
    """One output."""

    path: str  # below the output folder, with / as the separator
    bytes: int
    sha256: str


@dataclass(frozen=True)
class OutputManifest:
    """All outputs of one attempt."""

    run: str
    job: str
    emitter: str
    entries: tuple[ManifestEntry, ...]

    @property
    def name(self) -> str:
        """The name of the manifest below the destination."""
        return f"{staging_folder(self.run, self.job, self.emitter)}/{MANIFEST_NAME}"

    def to_text(self) -> str:
        """Return a line about the manifest, and one for each output."""
        header = {"version": MANIFEST_VERSION, "run": self.run, "job": self.job, "emitter": self.emitter}
        lines = [{**header, "outputs": len(self.entries)}, *map(asdict, self.entries)]
        return "".join(f"{json.dumps(line)}\n" for line in lines)

    @classmethod
    def from_text(cls, text: str) -> OutputManifest:
        """Parse a manifest; unknown keys are ignored. Raises FormatError."""
        try:
            header, *lines = [json.loads(line) for line in text.splitlines()]
            if header["version"] != MANIFEST_VERSION:
                raise ValueError(f"it has version {header['version']}, this packtrain reads {MANIFEST_VERSION}")
            if header["outputs"] != len(lines):
                raise ValueError(f"it lists {len(lines)} of {header['outputs']} outputs")
            entries = tuple(map(_parse_entry, lines))
            return cls(str(header["run"]), str(header["job"]), str(header["emitter"]), entries)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FormatError(f"not a manifest of outputs: {text[:80]!r} ({error})") from None


def _parse_entry(raw: Any) -> ManifestEntry:
    path, n_bytes = str(raw["path"]), raw["bytes"]
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise ValueError(f"{path!r} is not a name below the output folder")
    if type(n_bytes) is not int:
        raise ValueError(f"{n_bytes!r} is not a number of bytes")
    return ManifestEntry(path, n_bytes, str(raw["sha256"]))
