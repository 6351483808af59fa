"""Load the workflow of a submission: a workflow file, a submit file or batch script, or a document of a program."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packtrain.condor.submitfile import is_submit_file, load_submit_file
from packtrain.errors import UsageError
from packtrain.pixi_workspace.manifest import DEFAULT_ENVIRONMENT
from packtrain.slurm.batchfile.convert import is_batch_file, load_batch_file
from packtrain.spec.converted_file import ConvertedFile
from packtrain.spec.diagnostics import SourceMap
from packtrain.spec.load import LoadResult, load_workflow_file, validate_workflow
from packtrain.spec.models.pixi import PixiConfig
from packtrain.spec.yaml_loader import YamlDocument

WorkflowSource = str | os.PathLike[str] | Mapping[str, Any]


def load_workflow(
    source: WorkflowSource,
    expect: tuple[str, ...] = (),
    matrix: Mapping[str, Any] | None = None,
    pixi: str = "",
) -> LoadResult:
    """Load a workflow.

    Args:
        source: The path of a workflow file, submit file or batch script, or a mapping with the keys of a workflow file.
        expect: Files that the outputs must contain, in addition to those of the workflow.
        matrix: Replaces the matrix of the workflow.
        pixi: The Pixi environment of all commands, as `MANIFEST[:ENVIRONMENT]`, which replaces that of the workflow.
    """
    loaded = _load(source, expect, matrix)
    return loaded.with_pixi_environment(_parse_environment(pixi)) if pixi else loaded


def _parse_environment(text: str) -> PixiConfig:
    """Return the environment that `pixi.toml:gpu` names; its path is relative to the current folder."""
    manifest, separator, name = text.rpartition(":")
    manifest, name = (manifest, name) if separator else (text, DEFAULT_ENVIRONMENT)
    try:
        return PixiConfig(manifest=str(Path(manifest).absolute()), environment=name)
    except ValueError:
        raise UsageError(f"--pixi {text} is not a manifest with an environment, such as pixi.toml:gpu") from None


def _load(source: WorkflowSource, expect: tuple[str, ...], matrix: Mapping[str, Any] | None) -> LoadResult:
    overrides = {} if matrix is None else {"matrix": _to_json_values(matrix)}
    if isinstance(source, Mapping):
        document = YamlDocument({**_to_json_values(source), **overrides}, SourceMap(), ())
        return validate_workflow(document).with_expected_outputs(expect)
    path = Path(source)
    converted = convert_file(path, expect)
    if converted is not None:
        if overrides:
            message = "is a submit file or batch script and has no matrix; `packtrain convert` makes a workflow of it"
            raise UsageError(f"{path} {message}")
        return converted.load_result
    return load_workflow_file(path, overrides).with_expected_outputs(expect)


def convert_file(path: Path, expect: tuple[str, ...] = ()) -> ConvertedFile | None:
    """Convert a submit file or batch script. Return None if the file is neither.

    Args:
        path: The file.
        expect: Files that the outputs must contain.
    """
    if is_batch_file(path):
        return load_batch_file(path, expect)
    return load_submit_file(path, expect) if is_submit_file(path) else None


def find_workflow_dir(source: WorkflowSource) -> Path:
    """Return the folder to which paths in the workflow are relative."""
    return Path.cwd() if isinstance(source, Mapping) else Path(source).absolute().parent


def _to_json_values(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document as a file would contain it: tuples become lists; paths and NumPy's numbers become text."""
    values: dict[str, Any] = json.loads(json.dumps(dict(document), default=str))
    return values
