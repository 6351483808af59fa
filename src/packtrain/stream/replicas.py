"""Who has the archives: the servers behind their addresses, and a record of each (see `transfer.sources`)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from packtrain.errors import TransferError
from packtrain.plan import Location
from packtrain.stream.index import LAYOUT_FILES, Index, strip_credentials
from packtrain.transfer.api import Replica, SecretResolver
from packtrain.transfer.engine.source_selector import SourceSelector
from packtrain.transfer.engine.source_stats import SourceStats
from packtrain.transfer.http.connect import is_local_server
from packtrain.transfer.registry import find_replicas
from packtrain.transfer.retry import combine_errors
from packtrain.transfer.urls import join_url


class ArchiveReplicas:
    """`sources` are addresses of the archive, each as good as the other; none: those that the index names.

    Of several archives the others are looked for beside it, unless `archives` has the addresses of each. Whoever calls
    `choose`, or changes a record, has the lock.
    """

    def __init__(
        self,
        index: Index,
        sources: Sequence[Location],
        resolve_secret: SecretResolver,
        archive_sources: Sequence[Sequence[Location]] = (),
    ) -> None:
        self._index, self._sources, self._resolve_secret, self._archive_sources = (
            index,
            sources,
            resolve_secret,
            archive_sources,
        )
        self.source_set, self.lock = SourceSelector(), threading.RLock()
        self._stats_by_label: dict[tuple[int, str], SourceStats] = {}
        self._replicas_by_archive: dict[int, list[tuple[SourceStats, Replica]]] = {}
        self._indexed_sources: set[tuple[int, int]] = set()  # archive and record, where it was indexed
        self._excluded: dict[tuple[int, int], TransferError] = {}  # archive and record, and why
        self._discovery_lock = threading.Lock()

    def locations(self, archive_id: int) -> list[Location]:
        if self._archive_sources and not self._sources:
            return list(self._archive_sources[archive_id])
        about = self._index.archives[archive_id]
        if not self._sources:
            return [Location(url) for url in (about.url, *about.mirrors)]
        if len(self._index.archives) == 1:
            return list(self._sources)
        name = about.url.rpartition("/")[2]
        return [replace(ref, url=f"{ref.url.rpartition('/')[0]}/{name}") for ref in self._sources]

    @property
    def are_all_local(self) -> bool:
        """Whether all that is read comes from servers on this machine."""
        return all(
            is_local_server(ref.url) for archive in range(len(self._index.archives)) for ref in self.locations(archive)
        )

    def discover(self, archive_id: int) -> None:
        """Ask who has it, if that is not known; a director may have to be asked. Raises TransferError."""
        with self._discovery_lock:
            if archive_id not in self._replicas_by_archive:
                found, url = self._resolve_replicas(archive_id), self._index.archives[archive_id].url
                with self.lock:
                    self._replicas_by_archive[archive_id] = found
                    self._indexed_sources.update(
                        (archive_id, id(record))
                        for record, place in found
                        if strip_credentials(place.location.url) == url
                    )

    def forget(self, archive_id: int) -> None:
        """Nobody delivers: by now others may have it."""
        self._replicas_by_archive.pop(archive_id, None)

    def choose(
        self, archive_id: int, now: float, avoid: Sequence[SourceStats] = ()
    ) -> tuple[SourceStats, Replica] | None:
        """The best who may be asked now, others than those to avoid first."""
        places = self._replicas_by_archive.get(archive_id, ())
        known = {id(standing): place for standing, place in places if (archive_id, id(standing)) not in self._excluded}
        able = [standing for standing in self.source_set.rank_usable(now) if id(standing) in known]
        best = next((standing for standing in able if standing not in avoid), able[0] if able else None)
        return None if best is None else (best, known[id(best)])

    def stats_for(self, archive_id: int) -> list[SourceStats]:
        return [standing for standing, _ in self._replicas_by_archive.get(archive_id, ())]

    def exclude(self, archive_id: int, source_stats: SourceStats, error: TransferError) -> None:
        """Never asked for this archive again: it refuses, or has another one. Others may be had there all the same."""
        source_stats.is_refused = False
        self._excluded[archive_id, id(source_stats)] = error

    def exclusion_errors(self, archive_id: int) -> list[TransferError]:
        """Why nobody may be asked for it ever again; nothing, if somebody may."""
        known = self._replicas_by_archive.get(archive_id, ())
        errors = [self._excluded.get((archive_id, id(standing))) for standing, _ in known]
        return [error for error in errors if error] if None not in errors else []

    def sample_location(self, replica: Replica, sample: int) -> Location:
        """Where the sample's bytes are at this place."""
        if self._index.layout == LAYOUT_FILES:
            return replace(replica.location, url=join_url(replica.location.url, self._index.name(sample)))
        return replica.location

    def is_indexed_source(self, archive_id: int, source_stats: SourceStats) -> bool:
        """Whether this is the address that was indexed, whose ETag is known."""
        return (archive_id, id(source_stats)) in self._indexed_sources

    def _resolve_replicas(self, archive_id: int) -> list[tuple[SourceStats, Replica]]:
        found, errors = [], []
        for rank, ref in enumerate(self.locations(archive_id)):
            try:
                found += [
                    (self._get_or_add_stats(rank, place), place) for place in find_replicas(ref, self._resolve_secret)
                ]
            except TransferError as error:
                errors.append(error)
        if not found:
            raise combine_errors(errors)
        return found

    def _get_or_add_stats(self, rank: int, replica: Replica) -> SourceStats:
        key = rank, replica.label
        if key not in self._stats_by_label:
            self._stats_by_label[key] = SourceStats(replica, rank)
            self.source_set.source_stats.append(self._stats_by_label[key])
        return self._stats_by_label[key]
