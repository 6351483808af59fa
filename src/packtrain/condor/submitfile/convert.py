"""Converts a submit file to a workflow, or reports all its problems at once."""

from __future__ import annotations

import os
import re
from pathlib import Path

from packtrain.condor.submitfile import commands
from packtrain.condor.submitfile.parsed_submit import ParsedSubmit
from packtrain.condor.submitfile.syntax.context import SubmitContext
from packtrain.condor.submitfile.syntax.submit_reader import MAX_SUBMIT_FILE_BYTES, parse_submit_description
from packtrain.condor.submitfile.translate import translate
from packtrain.spec import yaml_loader
from packtrain.spec.converted_file import ConvertedFile
from packtrain.spec.diagnostics import ERROR, Diagnostic
from packtrain.spec.load import LoadResult, validate_workflow

_SUBMIT_SUFFIXES = (".sub", ".submit", ".jdl", ".condor", ".htc", ".jds")
_WORKFLOW_SUFFIXES = (".yaml", ".yml", ".json")
_QUEUE_LINE = re.compile(r"^[ \t]*queue\b(?!\s*[:=])", re.IGNORECASE | re.MULTILINE)
_COMMAND_LINE = re.compile(
    r"^[ \t]*(executable|universe|transfer_input_files|arguments)\s*=", re.IGNORECASE | re.MULTILINE
)


def is_submit_file(path: Path) -> bool:
    """Return whether a file is a submit file, by its suffix or, if that is unknown, by its content."""
    suffix = path.suffix.lower()
    if suffix in _SUBMIT_SUFFIXES or suffix in _WORKFLOW_SUFFIXES:
        return suffix in _SUBMIT_SUFFIXES
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_SUBMIT_FILE_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return False
    return bool(_QUEUE_LINE.search(text) and _COMMAND_LINE.search(text))


def load_submit_file(path: str | os.PathLike[str], expect: tuple[str, ...] = ()) -> ConvertedFile:
    """Load a submit file and convert it. Never raises: all problems, also an unreadable file, become diagnostics.

    Args:
        path: The submit file.
        expect: Outputs that each job must produce, in addition to those of the file.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            text = file.read(4 * MAX_SUBMIT_FILE_BYTES).decode("utf-8", "replace").removeprefix("\ufeff")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problem = Diagnostic(name, 1, 1, ERROR, f"the file cannot be read: {reason}")
        return ConvertedFile(LoadResult(None, (problem,)), {})
    return convert_text(text, name, SubmitContext(Path(name).absolute().parent), expect)


def convert_text(text: str, name: str, context: SubmitContext, expect: tuple[str, ...] = ()) -> ConvertedFile:
    """Convert the text of a submit file. `name` is its file name in diagnostics."""
    description = parse_submit_description(text, name, context, commands.KNOWN_COMMANDS)
    if any(problem.is_error for problem in description.problems):
        return ConvertedFile(LoadResult(None, tuple(description.problems)), {})
    submit = ParsedSubmit(description, context)
    draft = translate(submit, expect)
    problems = (*description.problems, *submit.report.diagnostics)
    if submit.report.has_errors:
        return ConvertedFile(LoadResult(None, tuple(sorted(problems, key=_sort_key))), draft.document)
    loaded = validate_workflow(yaml_loader.YamlDocument(draft.document, draft.source_map(name), problems))
    return ConvertedFile(loaded, draft.document)


def _sort_key(problem: Diagnostic) -> tuple[bool, int]:
    return problem.severity == ERROR, problem.line
