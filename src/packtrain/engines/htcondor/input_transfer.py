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

from packtrain.plan import Input, Item, Job, Plan, Ref
from packtrain.plan.local_inputs import delivered

NATIVE, PLUGIN, AGENT = "native", "plugin", "agent"
ADVISED_NATIVE_MB = 1000  # what the OSPool asks people to stay below

# What the agent has in its folder already, or makes there.
_BESIDE = frozenset({"agent.pyz", "launch.sh", "plan.json", "secrets", "journal.jsonl", "agent.log", "agent.out"})
_BESIDE |= {"logs", "output", "checkpoint", "kept"}


@dataclass(frozen=True)
class Parcel:
    """One input of one or more jobs that is not the agent's to fetch."""

    folder: str  # in-0, in-1, …: its folder beside the agent
    way: str
    source: Input


def way_of(source: Input) -> str:
    """Raises nothing: what does not fit together is told by `problems`."""
    if source.mode == "stream":
        return AGENT
    if source.delivery != "auto":
        return source.delivery
    return NATIVE if is_local(source) else AGENT


def is_local(source: Input) -> bool:
    return all(urlsplit(ref.url).scheme == "file" for ref in _refs(source))


def _refs(source: Input) -> tuple[Ref, ...]:
    if source.prefix:
        return (source.prefix,)
    return tuple(ref for item in source.items for ref in item.sources)


def problems(source: Input, name: str) -> Iterator[str]:
    """What cannot be done with this input, as sentences."""
    way = way_of(source)
    if source.mode == "stream" and is_local(source) and source.delivery != "agent":
        yield (
            f"{name}: jobs of a pool cannot stream a file of this machine; give an address that they reach (http, s3, "
            "osdf), or say `delivery: agent` if all machines have it under the same path"
        )
    if way == NATIVE and not is_local(source):
        yield f"{name}: native delivery is for files of this machine; use agent or plugin for an address"
    if way == PLUGIN and (source.prefix or is_local(source)):
        yield f"{name}: plugin delivery is for addresses of single files; use native or agent"
    if way == PLUGIN and any(ref.token or ref.headers or ref.s3 for ref in _refs(source)):
        yield (
            f"{name}: HTCondor's plugins do not see the token, headers or keys of the workflow; use agent, or "
            "`use_oauth_services` below `htcondor` and no token"
        )


def clashes(job: Job) -> Iterator[tuple[Input, str]]:
    """Inputs of plugins that would take the place of another file: HTCondor puts all of them into one folder, and the
    last one of a name wins without a word."""
    taken = dict.fromkeys(_BESIDE, "")
    for source in (source for source in job.inputs if way_of(source) == PLUGIN):
        for ref in (item.sources[0] for item in source.items):
            name = _plugin_name(ref)
            if taken.setdefault(name, ref.url) != ref.url:
                yield source, f"plugin delivery would put two different files under the name {name!r}; use agent"


def parcels(plan: Plan) -> list[Parcel]:
    """Each different one once, in the order of the plan."""
    found: dict[Input, Parcel] = {}
    for source in (source for job in plan.jobs for source in job.inputs):
        if way_of(source) != AGENT and source not in found:
            found[source] = Parcel(f"in-{len(found)}", way_of(source), source)
    return list(found.values())


def for_worker(job: Job, sent: Sequence[Parcel]) -> Job:
    """The job as its agent reads it: inputs where they will lie, and no output that only this machine has."""
    folders = {parcel.source: parcel for parcel in sent}
    inputs = tuple(_arriving(source, folders.get(source)) for source in job.inputs)
    local = job.output is not None and urlsplit(job.output.ref.url).scheme == "file"
    return replace(job, inputs=inputs, output=None if local else job.output)


def _arriving(source: Input, parcel: Parcel | None) -> Input:
    if source.index is not None:
        return replace(source, index=replace(source.index, sources=(delivered(_index_of(source.index).name),)))
    if parcel is None:
        return source
    if source.prefix:
        return replace(source, prefix=delivered(parcel.folder))
    items = tuple(
        replace(item, sources=(delivered(_landing(parcel, item.name, item.sources)),)) for item in source.items
    )
    return replace(source, items=items)


def _index_of(index: Item) -> Path:
    return path_of(index.sources[0])


def _landing(parcel: Parcel, name: str, sources: Sequence[Ref]) -> str:
    """A plugin puts a file beside the agent under its own name; what we send lies in its folder."""
    return _plugin_name(sources[0]) if parcel.way == PLUGIN else f"{parcel.folder}/{name}"


def _plugin_name(ref: Ref) -> str:
    """As HTCondor has it: without the query, and %20 stays %20."""
    return PurePosixPath(urlsplit(_plugin_url(ref)).path).name


def _plugin_url(ref: Ref) -> str:
    """As it can stand in a list of files, which commas divide."""
    return ref.url.replace(",", "%2C")


def lay_out(sent: Sequence[Parcel], native: Path) -> None:
    """Folders of links to what the access point sends, each under the name that the job expects."""
    for parcel in sent:
        folder = native / parcel.folder
        folder.mkdir(parents=True, exist_ok=True)
        for name, path in _files(parcel) if parcel.way == NATIVE else ():
            link = folder / name
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(path)


def _files(parcel: Parcel) -> Iterator[tuple[str, Path]]:
    if parcel.source.prefix:
        root = path_of(parcel.source.prefix)
        for folder, _, names in os.walk(root):
            yield from ((str(Path(folder, name).relative_to(root)), Path(folder, name)) for name in sorted(names))
    else:
        yield from ((item.name, path_of(item.sources[0])) for item in parcel.source.items)


def left_out(source: Input) -> Iterator[str]:
    """Folders of a native input that no job gets: links to folders are not followed, and of empty ones nothing is
    sent."""
    if source.prefix is None or way_of(source) != NATIVE or not is_local(source):
        return
    root = path_of(source.prefix)
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        yield from (str((here / name).relative_to(root)) for name in sorted(folders) if (here / name).is_symlink())
        if not folders and not names and here != root:
            yield str(here.relative_to(root))


def path_of(ref: Ref) -> Path:
    return Path(unquote(urlsplit(ref.url).path))


def transfer_list(job: Job, sent: Sequence[Parcel], native: Path) -> tuple[str, ...]:
    """What HTCondor is told to bring for the inputs of a job."""
    folders = {parcel.source: parcel for parcel in sent}
    mine = [folders[source] for source in job.inputs if source in folders]
    listed: list[str] = []
    for parcel in mine:
        if parcel.way == PLUGIN:
            listed += [_plugin_url(item.sources[0]) for item in parcel.source.items]
        else:
            listed.append(str(native / parcel.folder))
    listed += [str(_index_of(source.index)) for source in job.inputs if source.index is not None]
    return tuple(dict.fromkeys(listed))


def native_bytes(job: Job, extra: Sequence[Path] = ()) -> int:
    """What the access point would send to one job."""
    found = [path for source in job.inputs if way_of(source) == NATIVE and is_local(source) for path in _paths(source)]
    return sum(_size(path) for path in (*found, *extra))


def _paths(source: Input) -> Iterator[Path]:
    yield from (path for _, path in _files(Parcel("", NATIVE, source)))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # a missing file is told elsewhere
        return 0
