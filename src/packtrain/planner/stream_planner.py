"""Inputs that a training reads where they are (`mode: stream`): what their addresses mean, and how the index of each,
made when the run is started, becomes part of the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packtrain.errors import UsageError
from packtrain.indexing import IndexRequest
from packtrain.indexing.braces import expand_braces
from packtrain.plan import Input, Location, Plan, RemoteFile
from packtrain.stream.index import INDEX_SUFFIX, Index, strip_credentials
from packtrain.transfer.api import SecretResolver
from packtrain.transfer.urls import url_scheme

STREAM = "stream"
_INDEXABLE_SUFFIXES = (".tar", ".zip")
_COMPRESSED_SUFFIXES = (".gz", ".tgz", ".bz2", ".tbz", ".tbz2", ".xz", ".txz", ".zst", ".lz4", ".7z", ".rar")


def is_compressed(url: str) -> bool:
    """By its name. What is inside decides when the index is made."""
    return urlsplit(url).path.lower().endswith(_COMPRESSED_SUFFIXES)


def is_indexable_archive(url: str) -> bool:
    """One that samples can be read out of, by its name."""
    return urlsplit(url).path.lower().endswith(_INDEXABLE_SUFFIXES)


def expand_shards(file: RemoteFile) -> tuple[RemoteFile, ...]:
    """Addresses with braces (`train-{000..146}.tar`) mean several archives. Raises UsageError."""
    lists = [expand_braces(ref.url) for ref in file.locations]
    if {len(urls) for urls in lists} == {1}:
        return (file,)
    if len({len(urls) for urls in lists}) > 1:
        raise UsageError(f"the mirrors of {file.name} mean different numbers of archives")
    refs = [[replace(ref, url=url) for url in urls] for ref, urls in zip(file.locations, lists, strict=True)]
    return tuple(RemoteFile(url_basename(sources[0].url), sources) for sources in zip(*refs, strict=True))


def url_basename(url: str) -> str:
    """The last part of an address, without a query."""
    return unquote(urlsplit(url).path.rstrip("/").rpartition("/")[2]) or "data"


def resolve_stream_prefix(prefix: Location) -> tuple[tuple[RemoteFile, ...], Location | None]:
    """An address whose end does not tell whether it means an archive or a folder, as S3 has them. Raises UsageError."""
    path, _, flags = prefix.url.partition("?") if url_scheme(prefix.url) != "s3" else (prefix.url, "", "")
    others = "&".join(flag for flag in flags.split("&") if flag and flag.partition("=")[0] != "recursive")
    if path.lower().endswith(_INDEXABLE_SUFFIXES):
        return expand_shards(RemoteFile(url_basename(path), (prefix,))), None
    folder = path.rstrip("/") + "/" + (f"?{others}" if others else "")
    return (), replace(prefix, url=folder)


def streamed_inputs(plan: Plan) -> list[Input]:
    """Each different one once."""
    return list(dict.fromkeys(source for job in plan.jobs for source in job.inputs if source.mode == STREAM))


def make_index_request(input_: Input, resolve_secret: SecretResolver, retry_timeout_s: float) -> IndexRequest:
    return IndexRequest([list(sources) for sources in _location_groups(input_)], resolve_secret, retry_timeout_s)


def _location_groups(input_: Input) -> Sequence[tuple[Location, ...]]:
    return [(input_.prefix,)] if input_.prefix else [item.locations for item in input_.files]


def add_indexes(plan: Plan, indexes: Mapping[Input, Index], folder: Path) -> Plan:
    """The plan with the indexes that will lie in `folder` under their present names."""
    made = {source: _add_index(source, index, folder) for source, index in indexes.items()}
    jobs = (replace(job, inputs=tuple(made.get(source, source) for source in job.inputs)) for job in plan.jobs)
    return replace(plan, jobs=tuple(jobs))


def _add_index(input_: Input, index: Index, folder: Path) -> Input:
    place = Location((folder.absolute() / index.path.name).as_uri())
    given = _location_groups(input_)
    items = []
    for archive in index.archives:
        sources = _archive_locations(given, archive.url)
        items.append(RemoteFile(url_basename(archive.url), sources, archive.size))
    item = RemoteFile(url_basename(given[0][0].url) + INDEX_SUFFIX, (place,), index.path.stat().st_size)
    return replace(input_, files=tuple(items), prefix=None, index=item)


def _archive_locations(location_groups: Iterable[tuple[Location, ...]], url: str) -> tuple[Location, ...]:
    """Where to have an archive of the index: it is one of those given, or lies in a folder that was."""
    fitting = [refs for refs in location_groups if url.startswith(strip_credentials(refs[0].url))]
    refs = max(fitting, key=lambda refs: len(refs[0].url))
    rest = url[len(strip_credentials(refs[0].url)) :]
    return tuple(replace(ref, url=ref.url + rest) for ref in refs)
