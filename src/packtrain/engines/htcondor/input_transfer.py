"""Decides, before anything is submitted, how each input reaches the worker.

condor   files of the access point, sent by HTCondor itself (the default for local files)
plugin   URLs that HTCondor's transfer plugins fetch (the method of the published study)
agent    fetched by the agent inside the job, resumable and from several replicas (the default for URLs)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from packtrain.plan import Input, Job, Location, Plan, RemoteFile
from packtrain.plan.local_inputs import local_input_location

CONDOR, PLUGIN, AGENT = "condor", "plugin", "agent"
MAX_RECOMMENDED_CONDOR_MB = 1000  # the limit that the OSPool recommends

# Files that are sent to the attempt folder on the worker, or that the agent creates there.
_RESERVED_NAMES = frozenset(
    {"agent.pyz", "launch.sh", "plan.json", "secrets", "journal.jsonl", "agent.log", "agent.out"}
)
_RESERVED_NAMES |= {"logs", "output", "checkpoint", "reusable-inputs"}


@dataclass(frozen=True)
class CondorInput:
    """An input of one or more jobs that HTCondor transfers, itself or by a plugin."""

    sandbox_folder: str  # input-0, input-1, …: its folder in the attempt folder on the worker
    method: str
    source: Input


def transfer_method(source: Input) -> str:
    """Return the transfer method of an input. `find_problems` reports invalid combinations."""
    if source.mode == "stream":
        return AGENT
    if source.transfer != "auto":
        return source.transfer
    return CONDOR if is_local(source) else AGENT


def is_local(source: Input) -> bool:
    """Return whether all files of an input are files of this machine."""
    return all(urlsplit(location.url).scheme == "file" for location in _locations(source))


def _locations(source: Input) -> tuple[Location, ...]:
    if source.prefix:
        return (source.prefix,)
    return tuple(location for remote_file in source.files for location in remote_file.locations)


def find_problems(source: Input, name: str) -> Iterator[str]:
    """Yield messages about an input that cannot be transferred as requested. `name` is its key in the workflow."""
    method = transfer_method(source)
    if source.mode == "stream" and is_local(source) and source.transfer != "agent":
        yield (
            f"{name}: jobs of a pool cannot stream a file of this machine; use a URL that they can reach (http, s3, "
            "osdf), or `transfer: agent` if all nodes have the file under the same path"
        )
    if method == CONDOR and not is_local(source):
        yield f"{name}: `transfer: condor` is for files of this machine; use agent or plugin for a URL"
    if method == PLUGIN and (source.prefix or not source.files):
        yield f"{name}: `transfer: plugin` is for URLs of single files; use condor or agent"
    if method == PLUGIN and any(location.token or location.headers or location.s3 for location in _locations(source)):
        yield (
            f"{name}: HTCondor's plugins do not get the token, headers or keys of the workflow; use agent, or "
            "`use_oauth_services` below `htcondor` instead of the token"
        )


def find_name_conflicts(job: Job) -> Iterator[tuple[Input, str]]:
    """Yield plugin inputs that would overwrite another file, each with a message.

    HTCondor puts all of them into one folder and silently keeps the last file of each name.
    """
    url_by_name = dict.fromkeys(_RESERVED_NAMES, "")
    for source in (source for source in job.inputs if transfer_method(source) == PLUGIN):
        for location in (remote_file.locations[0] for remote_file in source.files):
            name = _plugin_file_name(location)
            if url_by_name.setdefault(name, location.url) != location.url:
                yield source, f"`transfer: plugin` would give two different files the name {name!r}; use agent"


def collect_condor_inputs(plan: Plan) -> list[CondorInput]:
    """Return the distinct inputs of all jobs that the agent does not fetch, in the order of the plan."""
    by_source: dict[Input, CondorInput] = {}
    for source in (source for job in plan.jobs for source in job.inputs):
        if transfer_method(source) != AGENT and source not in by_source:
            by_source[source] = CondorInput(f"input-{len(by_source)}", transfer_method(source), source)
    return list(by_source.values())


def job_for_worker(job: Job, condor_inputs: Sequence[CondorInput]) -> Job:
    """Return the job as its agent gets it: transferred inputs as local files, and no output on the access point."""
    by_source = {condor_input.source: condor_input for condor_input in condor_inputs}
    inputs = tuple(_input_on_worker(source, by_source.get(source)) for source in job.inputs)
    has_local_output = job.output is not None and urlsplit(job.output.location.url).scheme == "file"
    environment = job.environment
    if environment.pixi:
        folder = local_input_location(local_path(environment.pixi.folder).name)
        environment = replace(environment, pixi=replace(environment.pixi, folder=folder))
    return replace(job, inputs=inputs, output=None if has_local_output else job.output, environment=environment)


def _input_on_worker(source: Input, condor_input: CondorInput | None) -> Input:
    if source.index is not None:
        location = local_input_location(_index_path(source.index).name)
        return replace(source, index=replace(source.index, locations=(location,)))
    if condor_input is None:
        return source
    if source.prefix:
        return replace(source, prefix=local_input_location(condor_input.sandbox_folder))
    files = tuple(
        replace(file, locations=(local_input_location(_path_on_worker(condor_input, file.name, file.locations)),))
        for file in source.files
    )
    return replace(source, files=files)


def _index_path(index: RemoteFile) -> Path:
    return local_path(index.locations[0])


def _path_on_worker(condor_input: CondorInput, name: str, locations: Sequence[Location]) -> str:
    """A plugin puts a file into the attempt folder under its own name; other files are in the input's folder."""
    if condor_input.method == PLUGIN:
        return _plugin_file_name(locations[0])
    return f"{condor_input.sandbox_folder}/{name}"


def _plugin_file_name(location: Location) -> str:
    """Return the file name that HTCondor derives from a URL: without the query, and %20 is not decoded."""
    return PurePosixPath(urlsplit(_plugin_url(location)).path).name


def _plugin_url(location: Location) -> str:
    """Return a URL for a list of files that is separated by commas."""
    return location.url.replace(",", "%2C")


def link_condor_inputs(condor_inputs: Sequence[CondorInput], inputs_dir: Path) -> None:
    """Create folders of links to the files that HTCondor sends, with the names that the jobs expect."""
    for condor_input in condor_inputs:
        folder = inputs_dir / condor_input.sandbox_folder
        folder.mkdir(parents=True, exist_ok=True)
        for name, path in _iter_files(condor_input) if condor_input.method == CONDOR else ():
            link = folder / name
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(path)


def _iter_files(condor_input: CondorInput) -> Iterator[tuple[str, Path]]:
    if condor_input.source.prefix:
        root = local_path(condor_input.source.prefix)
        for folder, _, names in os.walk(root):
            yield from ((str(Path(folder, name).relative_to(root)), Path(folder, name)) for name in sorted(names))
    else:
        yield from ((file.name, local_path(file.locations[0])) for file in condor_input.source.files)


def skipped_folders(source: Input) -> Iterator[str]:
    """Yield folders of a local input that jobs do not get: links to folders, and empty folders."""
    if source.prefix is None or transfer_method(source) != CONDOR or not is_local(source):
        return
    root = local_path(source.prefix)
    for folder, subfolders, names in os.walk(root):
        path = Path(folder)
        yield from (str((path / name).relative_to(root)) for name in sorted(subfolders) if (path / name).is_symlink())
        if not subfolders and not names and path != root:
            yield str(path.relative_to(root))


def local_path(location: Location) -> Path:
    """Return the path of a file:// URL."""
    return Path(unquote(urlsplit(location.url).path))


def transfer_input_files(job: Job, condor_inputs: Sequence[CondorInput], inputs_dir: Path) -> tuple[str, ...]:
    """Return the entries of `transfer_input_files` for the inputs of a job."""
    by_source = {condor_input.source: condor_input for condor_input in condor_inputs}
    entries: list[str] = []
    for condor_input in (by_source[source] for source in job.inputs if source in by_source):
        if condor_input.method == PLUGIN:
            entries += [_plugin_url(file.locations[0]) for file in condor_input.source.files]
        else:
            entries.append(str(inputs_dir / condor_input.sandbox_folder))
    entries += [str(_index_path(source.index)) for source in job.inputs if source.index is not None]
    entries += [str(local_path(job.environment.pixi.folder))] if job.environment.pixi else []
    return tuple(dict.fromkeys(entries))


def condor_transfer_bytes(job: Job, extra_paths: Sequence[Path] = ()) -> int:
    """Return how many bytes the access point would send to one job."""
    paths = [
        path
        for source in job.inputs
        if transfer_method(source) == CONDOR and is_local(source)
        for path in _source_paths(source)
    ]
    return sum(_file_size(path) for path in (*paths, *extra_paths))


def _source_paths(source: Input) -> Iterator[Path]:
    yield from (path for _, path in _iter_files(CondorInput("", CONDOR, source)))


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # the planner reports missing files
        return 0
