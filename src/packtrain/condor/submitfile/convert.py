"""From a submit file to a Workflow, or to all of its problems at once. The way in: `load_submit_file`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml as pyyaml

from packtrain.condor.submitfile import commands
from packtrain.condor.submitfile.context import Around
from packtrain.condor.submitfile.description import MAX_BYTES, read
from packtrain.condor.submitfile.parsed_submit import Told
from packtrain.condor.submitfile.translate import translate
from packtrain.spec import yaml_loader
from packtrain.spec.diagnostics import ERROR, Problem
from packtrain.spec.load import Loaded, load_document

_SUFFIXES = (".sub", ".submit", ".jdl", ".condor", ".htc", ".jds")
_WORKFLOWS = (".yaml", ".yml", ".json")
_QUEUE = re.compile(r"^[ \t]*queue\b(?!\s*[:=])", re.IGNORECASE | re.MULTILINE)
_KEY = re.compile(r"^[ \t]*(executable|universe|transfer_input_files|arguments)\s*=", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class Adopted:
    """A submit file as a workflow; `document` is what a workflow file would say."""

    loaded: Loaded
    document: dict[str, Any]

    def text(self, source: str) -> str:
        """The workflow file."""
        return f"# Made by `packtrain adopt` from {source}; paths are relative to this file.\n" + dump(self.document)


def is_submit_file(path: Path) -> bool:
    """By its name; a file with a name that says nothing by what is in it."""
    suffix = path.suffix.lower()
    if suffix in _SUFFIXES or suffix in _WORKFLOWS:
        return suffix in _SUFFIXES
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return False
    return bool(_QUEUE.search(text) and _KEY.search(text))


def load_submit_file(path: str | os.PathLike[str], expect: tuple[str, ...] = ()) -> Adopted:
    """Read and translate. Never raises for what is in the file, nor for a file that cannot be read."""
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            text = file.read(4 * MAX_BYTES).decode("utf-8", "replace").removeprefix("\ufeff")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problem = Problem(name, 1, 1, ERROR, f"the file cannot be read: {reason}")
        return Adopted(Loaded(None, (problem,)), {})
    return adopt_text(text, name, Around(Path(name).absolute().parent), expect)


def adopt_text(text: str, name: str, around: Around, expect: tuple[str, ...] = ()) -> Adopted:
    """The same for a text; `name` stands in the problems."""
    description = read(text, name, around, commands.KNOWN)
    if any(problem.is_error for problem in description.problems):
        return Adopted(Loaded(None, tuple(description.problems)), {})
    told = Told(description, around)
    draft = translate(told, expect)
    problems = (*description.problems, *told.report.problems)
    if told.report.failed:
        return Adopted(Loaded(None, tuple(sorted(problems, key=_order))), draft.value)
    loaded = load_document(yaml_loader.Document(draft.value, draft.origin(name), problems))
    return Adopted(loaded, draft.value)


def _order(problem: Problem) -> tuple[bool, int]:
    return problem.severity == ERROR, problem.line


class _Dumper(pyyaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: pyyaml.SafeDumper, value: str) -> pyyaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def dump(document: dict[str, Any]) -> str:
    """YAML as a person would write it: keys in their order, commands as blocks."""
    return pyyaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
