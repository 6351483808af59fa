"""What a run needs to read its secrets again when it is resumed: references, never values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from packtrain.planner.secret_sources import SecretSource


def write_secret_sources(path: Path, sources: Mapping[str, SecretSource], workflow_dir: Path) -> None:
    """`where` is the workflow's folder, which file references are relative to. Literals are left out."""
    kept = {name: asdict(replace(s, text="") if s.is_literal else s) for name, s in sources.items()}
    path.write_text(json.dumps({"where": str(workflow_dir), "secrets": kept}, indent=1) + "\n", encoding="utf-8")


def read_secret_sources(path: Path) -> tuple[dict[str, SecretSource], Path]:
    """Of a literal the text is empty."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return {name: SecretSource(**fields) for name, fields in data["secrets"].items()}, Path(data["where"])
