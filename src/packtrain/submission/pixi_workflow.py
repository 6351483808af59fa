"""Writes a first workflow file for a Pixi workspace: `packtrain init` in its folder."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from packtrain.pixi_workspace.environment import WorkspaceEnvironment, read_environment
from packtrain.pixi_workspace.errors import PixiError
from packtrain.pixi_workspace.manifest import DEFAULT_ENVIRONMENT, read_manifest

_PREFERRED_TASKS = ("train", "training", "main", "start", "run")
_TEMPLATE = """\
# Written by `packtrain init` from {manifest}.
#
#   packtrain check workflow.yaml      validate this file
#   packtrain plan workflow.yaml       show what a run would do
#   packtrain run workflow.yaml        run it on this machine; `--on htcondor` on a pool
name: {name}

# What one job gets.
resources:
  tasks: 1
  cpusPerTask: 2
  memPerCpu: 4GB
  gpus: {gpus}{gpu_comment}

# The packages in pixi.lock are installed on the worker. Steps start in a copy of this folder, which has the files that
# git does not ignore.
environment:
  pixi:
    manifest: {manifest}
    environment: {environment}{environment_comment}

# Data that is fetched before the first step. Each input becomes the folder $PACKTRAIN_INPUTS/NAME.
# inputs:
#   data:
#     http: {{url: https://example.org/data.tar.gz}}

# Files below $PACKTRAIN_OUTPUT that must exist at the end.
# expect:
#   - path: model.pt

steps:
  - name: {step}
    resources:
      gpusPerTask: {gpus}
    run:
{run}"""


def make_pixi_workflow(manifest_path: Path) -> str:
    """Return the text of a workflow file for a workspace.

    The environment is the first one that needs a GPU, otherwise the default one; the step runs a task that looks like
    the training.

    Raises:
        PixiError: No environment can be used.
    """
    manifest = read_manifest(manifest_path)
    usable: list[WorkspaceEnvironment] = []
    problem: PixiError | None = None
    for name in manifest.environment_names:
        try:
            usable.append(read_environment(manifest_path, name, has_gpu=True))
        except PixiError as error:
            problem = problem or error
    if not usable:
        raise problem or PixiError()
    chosen = next((one for one in usable if one.requires.min_cuda), usable[0])
    others = [one.name for one in usable if one is not chosen]
    cuda = chosen.requires.min_cuda
    task, run = _describe_run(chosen)
    return _TEMPLATE.format(
        manifest=manifest_path.name,
        name=re.sub(r"[^A-Za-z0-9._-]+", "-", manifest.name).strip("-._") or DEFAULT_ENVIRONMENT,
        gpus=1 if cuda else 0,
        gpu_comment=f" # the environment needs a driver for CUDA {cuda}" if cuda else "",
        environment=_quote(chosen.name),
        environment_comment=f" # or {', '.join(others)}" if others else "",
        step=_quote(task or "train"),
        run=run,
    )


def _describe_run(environment: WorkspaceEnvironment) -> tuple[str, str]:
    """Return the name of a task, or "", and the lines below `run`."""
    names = [task.name for task in environment.lock.tasks if not task.error and not task.name.startswith("_")]
    if not names:
        return "", "      command: python train.py # your program\n"
    task = next((name for name in _PREFERRED_TASKS if name in names), names[0])
    others = ", ".join(name for name in names if name != task)
    comment = f" # or {others}" if others else ""
    return task, f"      task: {_quote(task)}{comment}\n      # args: [--epochs, 14]\n"


def _quote(text: str) -> str:
    """Return text as a YAML value."""
    is_plain = re.fullmatch(r"[A-Za-z_][\w.-]*", text) and yaml.safe_load(text) == text
    return text if is_plain else json.dumps(text)
