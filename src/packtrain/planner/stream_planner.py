"""Inputs that a training reads where they are (`mode: stream`): what their addresses mean, and how the index of each,
made when the run is started, becomes part of the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packtrain.errors import UsageError
from packtrain.indexing import Wish
from packtrain.indexing.braces import expanded
from packtrain.plan import Input, Item, Plan, Ref
from packtrain.stream.index import SUFFIX, Index, bare
from packtrain.transfer.api import Reveal
from packtrain.transfer.urls import scheme_of

STREAM = "stream"
_ARCHIVES = (".tar", ".zip")
_PACKED = (".gz", ".tgz", ".bz2", ".tbz", ".tbz2", ".xz", ".txz", ".zst", ".lz4", ".7z", ".rar")


def is_packed(url: str) -> bool:
    """By its name. What is inside decides when the index is made."""
    return urlsplit(url).path.lower().endswith(_PACKED)


def may_be_archive(url: str) -> bool:
    """One that samples can be read out of, by its name."""
    return urlsplit(url).path.lower().endswith(_ARCHIVES)


def shards(item: Item) -> tuple[Item, ...]:
    """Addresses with braces (`train-{000..146}.tar`) mean several archives. Raises UsageError."""
    lists = [expanded(ref.url) for ref in item.sources]
    if {len(urls) for urls in lists} == {1}:
        return (item,)
    if len({len(urls) for urls in lists}) > 1:
        raise UsageError(f"the mirrors of {item.name} mean different numbers of archives")
    refs = [[replace(ref, url=url) for url in urls] for ref, urls in zip(item.sources, lists, strict=True)]
    return tuple(Item(last_name(sources[0].url), sources) for sources in zip(*refs, strict=True))


def last_name(url: str) -> str:
    """The last part of an address, without a query."""
    return unquote(urlsplit(url).path.rstrip("/").rpartition("/")[2]) or "data"


def as_archives(prefix: Ref) -> tuple[tuple[Item, ...], Ref | None]:
    """An address whose end does not tell whether it means an archive or a folder, as S3 has them. Raises UsageError."""
    path, _, flags = prefix.url.partition("?") if scheme_of(prefix.url) != "s3" else (prefix.url, "", "")
    others = "&".join(flag for flag in flags.split("&") if flag and flag.partition("=")[0] != "recursive")
    if path.lower().endswith(_ARCHIVES):
        return shards(Item(last_name(path), (prefix,))), None
    folder = path.rstrip("/") + "/" + (f"?{others}" if others else "")
    return (), replace(prefix, url=folder)


def streamed(plan: Plan) -> list[Input]:
    """Each different one once."""
    return list(dict.fromkeys(source for job in plan.jobs for source in job.inputs if source.mode == STREAM))


def wish_of(source: Input, reveal: Reveal, patience_s: float) -> Wish:
    return Wish([list(sources) for sources in _given(source)], reveal, patience_s)


def _given(source: Input) -> Sequence[tuple[Ref, ...]]:
    return [(source.prefix,)] if source.prefix else [item.sources for item in source.items]


def with_indexes(plan: Plan, found: Mapping[Input, Index], folder: Path) -> Plan:
    """The plan with the indexes that will lie in `folder` under their present names."""
    made = {source: _with_index(source, index, folder) for source, index in found.items()}
    jobs = (replace(job, inputs=tuple(made.get(source, source) for source in job.inputs)) for job in plan.jobs)
    return replace(plan, jobs=tuple(jobs))


def _with_index(source: Input, index: Index, folder: Path) -> Input:
    place = Ref((folder.absolute() / index.path.name).as_uri())
    given = _given(source)
    items = []
    for archive in index.archives:
        sources = _sources(given, archive.url)
        items.append(Item(last_name(archive.url), sources, archive.size))
    item = Item(last_name(given[0][0].url) + SUFFIX, (place,), index.path.stat().st_size)
    return replace(source, items=tuple(items), prefix=None, index=item)


def _sources(given: Iterable[tuple[Ref, ...]], url: str) -> tuple[Ref, ...]:
    """Where to have an archive of the index: it is one of those given, or lies in a folder that was."""
    fitting = [refs for refs in given if url.startswith(bare(refs[0].url))]
    refs = max(fitting, key=lambda refs: len(refs[0].url))
    rest = url[len(bare(refs[0].url)) :]
    return tuple(replace(ref, url=ref.url + rest) for ref in refs)
