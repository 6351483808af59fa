"""Inputs and Pixi environments that the engine transfers: on the worker they are below the attempt's folder.

The submit side writes `local-input:in-0/NAME` into the plan; `resolve_local_inputs` makes it a file URL on the worker.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from packtrain.plan.model import Input, Job, Location, RemoteFile

LOCAL_INPUT_SCHEME = "local-input:"


def local_input_location(path: str) -> Location:
    """Return the location of a file or folder at `path` below the attempt's folder."""
    return Location(LOCAL_INPUT_SCHEME + path)


def resolve_local_inputs(job: Job, attempt_dir: Path) -> Job:
    """Return the job with file URLs for the inputs that the engine transferred to `attempt_dir`."""
    pixi = job.environment.pixi
    if pixi:
        pixi = replace(pixi, folder=_resolve_location(pixi.folder, attempt_dir))
        job = replace(job, environment=replace(job.environment, pixi=pixi))
    if not any(location.url.startswith(LOCAL_INPUT_SCHEME) for one in job.inputs for location in _input_locations(one)):
        return job
    return replace(job, inputs=tuple(_resolve_input(one, attempt_dir) for one in job.inputs))


def _input_locations(input_: Input) -> tuple[Location, ...]:
    prefix = (input_.prefix,) if input_.prefix else ()
    files = (*input_.files, input_.index) if input_.index else input_.files
    return prefix + tuple(location for file in files for location in file.locations)


def _resolve_input(input_: Input, attempt_dir: Path) -> Input:
    prefix = _resolve_location(input_.prefix, attempt_dir) if input_.prefix else None
    index = _resolve_file(input_.index, attempt_dir) if input_.index else None
    return replace(
        input_, prefix=prefix, index=index, files=tuple(_resolve_file(file, attempt_dir) for file in input_.files)
    )


def _resolve_file(file: RemoteFile, attempt_dir: Path) -> RemoteFile:
    return replace(file, locations=tuple(_resolve_location(location, attempt_dir) for location in file.locations))


def _resolve_location(location: Location, attempt_dir: Path) -> Location:
    if not location.url.startswith(LOCAL_INPUT_SCHEME):
        return location
    return Location((attempt_dir.absolute() / location.url[len(LOCAL_INPUT_SCHEME) :]).as_uri())
