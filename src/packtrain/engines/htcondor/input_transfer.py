"""How each input reaches the worker, decided before anything is submitted.

native   files of the access point, sent by HTCondor itself (the default for local files)
plugin   addresses that HTCondor's own plugins fetch (the published method)
agent    fetched by the agent in the job: resumed, from several sources (the default for addresses)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from packtrain.plan import Input, Job, Location, Plan, RemoteFile
from packtrain.plan.local_inputs import local_input_location

CONDOR, PLUGIN, AGENT = "native", "plugin", "agent"
MAX_RECOMMENDED_CONDOR_MB = 1000  # what the OSPool asks people to stay below

# What the agent has in its folder already, or makes there.
_RESERVED_NAMES = frozenset(
    {"agent.pyz", "launch.sh", "plan.json", "secrets", "journal.jsonl", "agent.log", "agent.out"}
)
_RESERVED_NAMES |= {"logs", "output", "checkpoint", "reusable-inputs"}


@dataclass(frozen=True)
class CondorInput:
    """One input of one or more jobs that is not the agent's to fetch."""

    sandbox_folder: str  # in-0, in-1, …: its folder beside the agent
    method: str
    source: Input


def transfer_method(source: Input) -> str:
    """Raises nothing: what does not fit together is told by `problems`."""
    if source.mode == "stream":
        return AGENT
    if source.transfer != "auto":
        return source.transfer
    return CONDOR if is_local(source) else AGENT


def is_local(source: Input) -> bool:
    return all(urlsplit(ref.url).scheme == "file" for ref in _locations(source))


def _locations(source: Input) -> tuple[Location, ...]:
    if source.prefix:
        return (source.prefix,)
    return tuple(ref for item in source.files for ref in item.locations)


def find_problems(source: Input, name: str) -> Iterator[str]:
    """What cannot be done with this input, as sentences."""
    way = transfer_method(source)
    if source.mode == "stream" and is_local(source) and source.transfer != "agent":
        yield (
            f"{name}: jobs of a pool cannot stream a file of this machine; give an address that they reach (http, s3, "
            "osdf), or say `transfer: agent` if all machines have it under the same path"
        )
    if way == CONDOR and not is_local(source):
        yield f"{name}: native delivery is for files of this machine; use agent or plugin for an address"
    if way == PLUGIN and (source.prefix or is_local(source)):
        yield f"{name}: plugin delivery is for addresses of single files; use native or agent"
    if way == PLUGIN and any(ref.token or ref.headers or ref.s3 for ref in _locations(source)):
        yield (
            f"{name}: HTCondor's plugins do not see the token, headers or keys of the workflow; use agent, or "
            "`use_oauth_services` below `htcondor` and no token"
        )


def find_name_conflicts(job: Job) -> Iterator[tuple[Input, str]]:
    """Inputs of plugins that would take the place of another file: HTCondor puts all of them into one folder, and the
    last one of a name wins without a word."""
    taken = dict.fromkeys(_RESERVED_NAMES, "")
    for source in (source for source in job.inputs if transfer_method(source) == PLUGIN):
        for ref in (item.locations[0] for item in source.files):
            name = _plugin_file_name(ref)
            if taken.setdefault(name, ref.url) != ref.url:
                yield source, f"plugin delivery would put two different files under the name {name!r}; use agent"


def collect_condor_inputs(plan: Plan) -> list[CondorInput]:
    """Each different one once, in the order of the plan."""
    found: dict[Input, CondorInput] = {}
    for source in (source for job in plan.jobs for source in job.inputs):
        if transfer_method(source) != AGENT and source not in found:
            found[source] = CondorInput(f"in-{len(found)}", transfer_method(source), source)
    return list(found.values())


def job_for_worker(job: Job, condor_inputs: Sequence[CondorInput]) -> Job:
    """The job as its agent reads it: inputs where they will lie, and no output that only this machine has."""
    folders = {parcel.source: parcel for parcel in condor_inputs}
    inputs = tuple(_input_on_worker(source, folders.get(source)) for source in job.inputs)
    local = job.output is not None and urlsplit(job.output.location.url).scheme == "file"
    return replace(job, inputs=inputs, output=None if local else job.output)


def _input_on_worker(source: Input, condor_input: CondorInput | None) -> Input:
    if source.index is not None:
        return replace(
            source, index=replace(source.index, locations=(local_input_location(_index_path(source.index).name),))
        )
    if condor_input is None:
        return source
    if source.prefix:
        return replace(source, prefix=local_input_location(condor_input.sandbox_folder))
    items = tuple(
        replace(item, locations=(local_input_location(_path_on_worker(condor_input, item.name, item.locations)),))
        for item in source.files
    )
    return replace(source, files=items)


def _index_path(index: RemoteFile) -> Path:
    return local_path(index.locations[0])


def _path_on_worker(condor_input: CondorInput, name: str, sources: Sequence[Location]) -> str:
    """A plugin puts a file beside the agent under its own name; what we send lies in its folder."""
    return _plugin_file_name(sources[0]) if condor_input.method == PLUGIN else f"{condor_input.sandbox_folder}/{name}"


def _plugin_file_name(location: Location) -> str:
    """As HTCondor has it: without the query, and %20 stays %20."""
    return PurePosixPath(urlsplit(_plugin_url(location)).path).name


def _plugin_url(location: Location) -> str:
    """As it can stand in a list of files, which commas divide."""
    return location.url.replace(",", "%2C")


def link_condor_inputs(condor_inputs: Sequence[CondorInput], inputs_dir: Path) -> None:
    """Folders of links to what the access point sends, each under the name that the job expects."""
    for parcel in condor_inputs:
        folder = inputs_dir / parcel.sandbox_folder
        folder.mkdir(parents=True, exist_ok=True)
        for name, path in _iter_files(parcel) if parcel.method == CONDOR else ():
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
        yield from ((item.name, local_path(item.locations[0])) for item in condor_input.source.files)


def skipped_folders(source: Input) -> Iterator[str]:
    """Folders of a native input that no job gets: links to folders are not followed, and of empty ones nothing is
    sent."""
    if source.prefix is None or transfer_method(source) != CONDOR or not is_local(source):
        return
    root = local_path(source.prefix)
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        yield from (str((here / name).relative_to(root)) for name in sorted(folders) if (here / name).is_symlink())
        if not folders and not names and here != root:
            yield str(here.relative_to(root))


def local_path(location: Location) -> Path:
    return Path(unquote(urlsplit(location.url).path))


def transfer_input_files(job: Job, condor_inputs: Sequence[CondorInput], inputs_dir: Path) -> tuple[str, ...]:
    """What HTCondor is told to bring for the inputs of a job."""
    folders = {parcel.source: parcel for parcel in condor_inputs}
    mine = [folders[source] for source in job.inputs if source in folders]
    listed: list[str] = []
    for parcel in mine:
        if parcel.method == PLUGIN:
            listed += [_plugin_url(item.locations[0]) for item in parcel.source.files]
        else:
            listed.append(str(inputs_dir / parcel.sandbox_folder))
    listed += [str(_index_path(source.index)) for source in job.inputs if source.index is not None]
    return tuple(dict.fromkeys(listed))


def condor_transfer_bytes(job: Job, extra_paths: Sequence[Path] = ()) -> int:
    """What the access point would send to one job."""
    found = [
        path
        for source in job.inputs
        if transfer_method(source) == CONDOR and is_local(source)
        for path in _source_paths(source)
    ]
    return sum(_file_size(path) for path in (*found, *extra_paths))


def _source_paths(source: Input) -> Iterator[Path]:
    yield from (path for _, path in _iter_files(CondorInput("", CONDOR, source)))


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # a missing file is told elsewhere
        return 0
