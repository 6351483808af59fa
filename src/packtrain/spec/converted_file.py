"""What the converters of other formats share: the workflow document that they build, and its text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml as pyyaml

from packtrain.spec.diagnostics import KeyPath, Position, SourceMap
from packtrain.spec.load import LoadResult


@dataclass(frozen=True)
class ConvertedFile:
    """The workflow of a converted file, and the document of an equivalent workflow file."""

    load_result: LoadResult
    document: dict[str, Any]

    def to_workflow_text(self, source: str) -> str:
        """Return the text of the workflow file. `source` is the name of the converted file."""
        comment = f"# Converted from {source} by `packtrain convert`; paths are relative to this file.\n"
        return comment + dump_yaml(self.document)


class WorkflowDraft:
    """The workflow document while it is built, with the line of the converted file for each key."""

    def __init__(self) -> None:
        self.document: dict[str, object] = {}
        self.positions: dict[KeyPath, Position] = {}

    def set_value(self, path: tuple[str, ...], value: object, position: Position) -> None:
        """Set a value, and create missing mappings above it.

        Args:
            path: The keys from the top of the document.
            value: The value.
            position: Its line in the converted file.
        """
        mapping = self.document
        for depth, key in enumerate(path[:-1], 1):
            inner = mapping.setdefault(key, {})
            assert isinstance(inner, dict)
            mapping = inner
            self.positions.setdefault(path[:depth], position)
        mapping[path[-1]] = value
        self.positions[path] = position

    def source_map(self, name: str) -> SourceMap:
        """Return the positions for diagnostics. `name` is the name of the converted file."""
        return SourceMap(name, self.positions, self.positions)


def workflow_name(path: str) -> str:
    """Return a valid workflow name for a converted file."""
    name = re.sub(r"[^A-Za-z0-9 ._-]+", "-", Path(path).stem).lstrip("-._ ")[:90]
    return name or "job"


class _Dumper(pyyaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: pyyaml.SafeDumper, value: str) -> pyyaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _represent_text)


def dump_yaml(document: dict[str, Any]) -> str:
    """Return YAML with keys in their order and multi-line texts as blocks."""
    return pyyaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
