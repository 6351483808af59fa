"""Inputs that the engine itself brings along: on the worker they lie below the attempt's folder, wherever that is.

The submit side writes `delivered:in-0/NAME` into the plan that rides to the worker; `at_home` makes it an address.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from packtrain.plan.model import Input, Item, Job, Ref

SCHEME = "delivered:"


def delivered(path: str) -> Ref:
    """The address of a file or folder at `path` below the attempt's folder."""
    return Ref(SCHEME + path)


def at_home(job: Job, home: Path) -> Job:
    """The job with the addresses of what was delivered to the folder `home`."""
    if not any(ref.url.startswith(SCHEME) for source in job.inputs for ref in _refs(source)):
        return job
    return replace(job, inputs=tuple(_input(source, home) for source in job.inputs))


def _refs(source: Input) -> tuple[Ref, ...]:
    prefix = (source.prefix,) if source.prefix else ()
    items = (*source.items, source.index) if source.index else source.items
    return prefix + tuple(ref for item in items for ref in item.sources)


def _input(source: Input, home: Path) -> Input:
    prefix = _ref(source.prefix, home) if source.prefix else None
    index = _item(source.index, home) if source.index else None
    return replace(source, prefix=prefix, index=index, items=tuple(_item(item, home) for item in source.items))


def _item(item: Item, home: Path) -> Item:
    return replace(item, sources=tuple(_ref(ref, home) for ref in item.sources))


def _ref(ref: Ref, home: Path) -> Ref:
    if not ref.url.startswith(SCHEME):
        return ref
    return Ref((home.absolute() / ref.url[len(SCHEME) :]).as_uri())
