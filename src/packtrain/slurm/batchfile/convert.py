"""Converts a batch script to a workflow, or reports all its problems at once."""

from __future__ import annotations

import os
import re
from pathlib import Path

from packtrain.slurm.batchfile.directives import read_directives, read_variables
from packtrain.slurm.batchfile.parsed_batch import BatchContext, ParsedBatch
from packtrain.slurm.batchfile.translate import translate
from packtrain.spec import yaml_loader
from packtrain.spec.converted_file import ConvertedFile
from packtrain.spec.diagnostics import ERROR, Diagnostic, DiagnosticReport, SourceMap
from packtrain.spec.load import LoadResult, validate_workflow

_SUFFIXES = (".sbatch", ".slurm")
_OTHER_SUFFIXES = (".sh", ".bash", ".job", "")  # of files that may also be something else
_DIRECTIVE_LINE = re.compile(r"^#SBATCH\s+-", re.MULTILINE)
_MAX_BYTES = 4 << 20  # Slurm's own default limit of a script


def is_batch_file(path: Path) -> bool:
    """Return whether a file is a batch script, by its suffix or, where that can mean anything, by its content."""
    suffix = path.suffix.lower()
    if suffix not in _OTHER_SUFFIXES:
        return suffix in _SUFFIXES
    try:
        with open(path, "rb") as file:
            text = file.read(_MAX_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return False
    return text.startswith("#!") and bool(_DIRECTIVE_LINE.search(text))


def load_batch_file(
    path: str | os.PathLike[str], expect: tuple[str, ...] = (), submit_dir: Path | None = None
) -> ConvertedFile:
    """Load a batch script and convert it. Never raises: all problems, also an unreadable file, become diagnostics.

    Args:
        path: The batch script.
        expect: Outputs that each job must produce, relative to the folder in which the script runs.
        submit_dir: The folder in which the script runs; the current one by default, as with sbatch.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            text = file.read(_MAX_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problem = Diagnostic(name, 1, 1, ERROR, f"the file cannot be read: {reason}")
        return ConvertedFile(LoadResult(None, (problem,)), {})
    context = BatchContext((submit_dir or Path.cwd()).absolute(), Path(name).absolute().parent, os.environ)
    return convert_text(text, name, context, expect)


def convert_text(text: str, name: str, context: BatchContext, expect: tuple[str, ...] = ()) -> ConvertedFile:
    """Convert the text of a batch script. `name` is its file name in diagnostics."""
    report = DiagnosticReport(SourceMap(name))
    directives = [*read_directives(text, report), *read_variables(context.environ)]
    draft = translate(ParsedBatch(name, text, directives, report, context), expect)
    if report.has_errors:
        return ConvertedFile(LoadResult(None, report.diagnostics), draft.document)
    document = yaml_loader.YamlDocument(draft.document, draft.source_map(name), report.diagnostics)
    return ConvertedFile(validate_workflow(document), draft.document)
