"""What a run needs to read its secrets again when it is resumed: references, never values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from packtrain.planner.secret_sources import SecretValue


def write_references(path: Path, secrets: Mapping[str, SecretValue], where: Path) -> None:
    """`where` is the workflow's folder, which file references are relative to. Literals are left out."""
    kept = {name: asdict(replace(s, text="") if s.is_literal else s) for name, s in secrets.items()}
    path.write_text(json.dumps({"where": str(where), "secrets": kept}, indent=1) + "\n", encoding="utf-8")


def read_references(path: Path) -> tuple[dict[str, SecretValue], Path]:
    """Of a literal the text is empty."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return {name: SecretValue(**fields) for name, fields in data["secrets"].items()}, Path(data["where"])
