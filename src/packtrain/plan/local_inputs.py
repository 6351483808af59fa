"""Inputs that the engine itself brings along: on the worker they lie below the attempt's folder, wherever that is.

The submit side writes `local-input:in-0/NAME` into the plan that rides to the worker; `at_home` makes it an address.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from packtrain.plan.model import Input, Job, Location, RemoteFile

LOCAL_INPUT_SCHEME = "local-input:"


def local_input_location(path: str) -> Location:
    """The address of a file or folder at `path` below the attempt's folder."""
    return Location(LOCAL_INPUT_SCHEME + path)


def resolve_local_inputs(job: Job, attempt_dir: Path) -> Job:
    """The job with the addresses of what was delivered to the folder `home`."""
    if not any(ref.url.startswith(LOCAL_INPUT_SCHEME) for source in job.inputs for ref in _input_locations(source)):
        return job
    return replace(job, inputs=tuple(_resolve_input(source, attempt_dir) for source in job.inputs))


def _input_locations(input_: Input) -> tuple[Location, ...]:
    prefix = (input_.prefix,) if input_.prefix else ()
    items = (*input_.files, input_.index) if input_.index else input_.files
    return prefix + tuple(ref for item in items for ref in item.locations)


def _resolve_input(input_: Input, attempt_dir: Path) -> Input:
    prefix = _resolve_location(input_.prefix, attempt_dir) if input_.prefix else None
    index = _resolve_file(input_.index, attempt_dir) if input_.index else None
    return replace(
        input_, prefix=prefix, index=index, files=tuple(_resolve_file(item, attempt_dir) for item in input_.files)
    )


def _resolve_file(file: RemoteFile, attempt_dir: Path) -> RemoteFile:
    return replace(file, locations=tuple(_resolve_location(ref, attempt_dir) for ref in file.locations))


def _resolve_location(location: Location, attempt_dir: Path) -> Location:
    if not location.url.startswith(LOCAL_INPUT_SCHEME):
        return location
    return Location((attempt_dir.absolute() / location.url[len(LOCAL_INPUT_SCHEME) :]).as_uri())
