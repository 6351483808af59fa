"""Who has the archives: the servers behind their addresses, and a record of each (see `transfer.sources`)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from packtrain.errors import TransferError
from packtrain.plan import Ref
from packtrain.stream.index import FILES, Index, bare
from packtrain.transfer.api import Place, Reveal
from packtrain.transfer.engine.source_stats import Sources, Standing
from packtrain.transfer.http.connect import is_here
from packtrain.transfer.registry import places_for
from packtrain.transfer.retry import verdict_of
from packtrain.transfer.urls import joined


class Hosts:
    """`sources` are addresses of the archive, each as good as the other; none: those that the index names.

    Of several archives the others are looked for beside it, unless `archives` has the addresses of each. Whoever calls
    `choose`, or changes a record, has the lock.
    """

    def __init__(
        self, index: Index, sources: Sequence[Ref], reveal: Reveal, archives: Sequence[Sequence[Ref]] = ()
    ) -> None:
        self._index, self._sources, self._reveal, self._archives = index, sources, reveal, archives
        self.records, self.lock = Sources(), threading.RLock()
        self._by_label: dict[tuple[int, str], Standing] = {}
        self._places: dict[int, list[tuple[Standing, Place]]] = {}
        self._first: set[tuple[int, int]] = set()  # archive and record, where it was indexed
        self._barred: dict[tuple[int, int], TransferError] = {}  # archive and record, and why
        self._finding = threading.Lock()

    def refs(self, archive: int) -> list[Ref]:
        if self._archives and not self._sources:
            return list(self._archives[archive])
        about = self._index.archives[archive]
        if not self._sources:
            return [Ref(url) for url in (about.url, *about.mirrors)]
        if len(self._index.archives) == 1:
            return list(self._sources)
        name = about.url.rpartition("/")[2]
        return [replace(ref, url=f"{ref.url.rpartition('/')[0]}/{name}") for ref in self._sources]

    @property
    def are_here(self) -> bool:
        """Whether all that is read comes from servers on this machine."""
        return all(is_here(ref.url) for archive in range(len(self._index.archives)) for ref in self.refs(archive))

    def find(self, archive: int) -> None:
        """Ask who has it, if that is not known; a director may have to be asked. Raises TransferError."""
        with self._finding:
            if archive not in self._places:
                found, url = self._found(archive), self._index.archives[archive].url
                with self.lock:
                    self._places[archive] = found
                    self._first.update((archive, id(record)) for record, place in found if bare(place.ref.url) == url)

    def forget(self, archive: int) -> None:
        """Nobody delivers: by now others may have it."""
        self._places.pop(archive, None)

    def choose(self, archive: int, now: float, avoid: Sequence[Standing] = ()) -> tuple[Standing, Place] | None:
        """The best who may be asked now, others than those to avoid first."""
        places = self._places.get(archive, ())
        known = {id(standing): place for standing, place in places if (archive, id(standing)) not in self._barred}
        able = [standing for standing in self.records.ranked(now) if id(standing) in known]
        best = next((standing for standing in able if standing not in avoid), able[0] if able else None)
        return None if best is None else (best, known[id(best)])

    def of(self, archive: int) -> list[Standing]:
        return [standing for standing, _ in self._places.get(archive, ())]

    def bar(self, archive: int, standing: Standing, error: TransferError) -> None:
        """Never asked for this archive again: it refuses, or has another one. Others may be had there all the same."""
        standing.refused = False
        self._barred[archive, id(standing)] = error

    def why_hopeless(self, archive: int) -> list[TransferError]:
        """Why nobody may be asked for it ever again; nothing, if somebody may."""
        known = self._places.get(archive, ())
        errors = [self._barred.get((archive, id(standing))) for standing, _ in known]
        return [error for error in errors if error] if None not in errors else []

    def at(self, place: Place, sample: int) -> Ref:
        """Where the sample's bytes are at this place."""
        if self._index.layout == FILES:
            return replace(place.ref, url=joined(place.ref.url, self._index.name(sample)))
        return place.ref

    def is_first(self, archive: int, standing: Standing) -> bool:
        """Whether this is the address that was indexed, whose ETag is known."""
        return (archive, id(standing)) in self._first

    def _found(self, archive: int) -> list[tuple[Standing, Place]]:
        found, errors = [], []
        for rank, ref in enumerate(self.refs(archive)):
            try:
                found += [(self._standing(rank, place), place) for place in places_for(ref, self._reveal)]
            except TransferError as error:
                errors.append(error)
        if not found:
            raise verdict_of(errors)
        return found

    def _standing(self, rank: int, place: Place) -> Standing:
        key = rank, place.label
        if key not in self._by_label:
            self._by_label[key] = Standing(place, rank)
            self.records.standings.append(self._by_label[key])
        return self._by_label[key]
