"""Plan streamed inputs (`mode: stream`): interpret their URLs and add their indexes to the plan."""

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
from packtrain.transfer.archive.formats import format_from_name
from packtrain.transfer.urls import url_scheme

STREAM = "stream"


def is_compressed(url: str) -> bool:
    """Return whether the URL's suffix is that of a compressed file; indexing checks the content."""
    archive_format = format_from_name(urlsplit(url).path)
    return archive_format is not None and not archive_format.can_index


def is_indexable_archive(url: str) -> bool:
    """Return whether the URL's suffix is that of an archive with random access."""
    archive_format = format_from_name(urlsplit(url).path)
    return archive_format is not None and archive_format.can_index


def expand_shards(file: RemoteFile) -> tuple[RemoteFile, ...]:
    """Expand URLs with braces (`train-{000..146}.tar`) to several archives. Raises UsageError."""
    url_lists = [expand_braces(location.url) for location in file.locations]
    if {len(urls) for urls in url_lists} == {1}:
        return (file,)
    if len({len(urls) for urls in url_lists}) > 1:
        raise UsageError(f"the mirrors of {file.name} expand to different numbers of archives")
    mirrors = [
        [replace(location, url=url) for url in urls] for location, urls in zip(file.locations, url_lists, strict=True)
    ]
    return tuple(RemoteFile(url_basename(shard[0].url), shard) for shard in zip(*mirrors, strict=True))


def url_basename(url: str) -> str:
    """Return the last part of a URL, without the query."""
    return unquote(urlsplit(url).path.rstrip("/").rpartition("/")[2]) or "data"


def resolve_stream_prefix(prefix: Location) -> tuple[tuple[RemoteFile, ...], Location | None]:
    """Return the archives, or the folder, that a prefix such as an S3 path refers to. Raises UsageError."""
    path, _, flags = prefix.url.partition("?") if url_scheme(prefix.url) != "s3" else (prefix.url, "", "")
    others = "&".join(flag for flag in flags.split("&") if flag and flag.partition("=")[0] != "recursive")
    archive_format = format_from_name(path)
    if archive_format is not None and archive_format.can_index:
        return expand_shards(RemoteFile(url_basename(path), (prefix,))), None
    folder = path.rstrip("/") + "/" + (f"?{others}" if others else "")
    return (), replace(prefix, url=folder)


def streamed_inputs(plan: Plan) -> list[Input]:
    """Return the distinct streamed inputs of a plan."""
    return list(dict.fromkeys(input_ for job in plan.jobs for input_ in job.inputs if input_.mode == STREAM))


def make_index_request(input_: Input, resolve_secret: SecretResolver, retry_timeout_s: float) -> IndexRequest:
    """Return the request to index a streamed input."""
    return IndexRequest([list(group) for group in _location_groups(input_)], resolve_secret, retry_timeout_s)


def _location_groups(input_: Input) -> Sequence[tuple[Location, ...]]:
    return [(input_.prefix,)] if input_.prefix else [file.locations for file in input_.files]


def add_indexes(plan: Plan, indexes: Mapping[Input, Index], folder: Path) -> Plan:
    """Return the plan with the indexes, which will be stored in `folder` under their present names."""
    indexed = {input_: _add_index(input_, index, folder) for input_, index in indexes.items()}
    jobs = (replace(job, inputs=tuple(indexed.get(input_, input_) for input_ in job.inputs)) for job in plan.jobs)
    return replace(plan, jobs=tuple(jobs))


def _add_index(input_: Input, index: Index, folder: Path) -> Input:
    location = Location((folder.absolute() / index.path.name).as_uri())
    groups = _location_groups(input_)
    archives = tuple(
        RemoteFile(url_basename(archive.url), _archive_locations(groups, archive.url), archive.size)
        for archive in index.archives
    )
    index_file = RemoteFile(url_basename(groups[0][0].url) + INDEX_SUFFIX, (location,), index.path.stat().st_size)
    return replace(input_, files=archives, prefix=None, index=index_file)


def _archive_locations(location_groups: Iterable[tuple[Location, ...]], url: str) -> tuple[Location, ...]:
    """Return the locations of an archive of the index: an input's own URL, or one below its folder."""
    matching = [group for group in location_groups if url.startswith(strip_credentials(group[0].url))]
    group = max(matching, key=lambda group: len(group[0].url))
    suffix = url[len(strip_credentials(group[0].url)) :]
    return tuple(replace(location, url=location.url + suffix) for location in group)
