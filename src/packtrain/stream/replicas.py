"""Find the servers that hold the archives of an index, and choose one for each request."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from packtrain.errors import TransferError
from packtrain.plan import Location
from packtrain.stream.index import LAYOUT_FILES, Index, strip_credentials
from packtrain.transfer.api import Replica, SecretResolver
from packtrain.transfer.engine.source_stats import SourceSelector, SourceStats
from packtrain.transfer.http.routes import is_local_server
from packtrain.transfer.registry import find_replicas
from packtrain.transfer.retry import combine_errors
from packtrain.transfer.urls import join_url


class ArchiveReplicas:
    """The replicas of all archives of an index, with the statistics of each server.

    Methods take an archive as its position in `Index.archives`. The caller of `choose`, and any code that changes
    statistics, must hold `lock`.

    Args:
        index: The index.
        sources: URLs of the archive, all with the same content. If the index has several archives, the others are
            expected in the same folder. Empty: use `archive_sources`.
        resolve_secret: Returns the value of a secret.
        archive_sources: URLs of each archive. Empty: the URLs in the index.

    Attributes:
        source_set: The statistics of all servers.
        lock: Protects the statistics.
    """

    def __init__(
        self,
        index: Index,
        sources: Sequence[Location],
        resolve_secret: SecretResolver,
        archive_sources: Sequence[Sequence[Location]] = (),
    ) -> None:
        self._index, self._sources = index, sources
        self._resolve_secret, self._archive_sources = resolve_secret, archive_sources
        self.source_set, self.lock = SourceSelector(), threading.RLock()
        self._stats_by_label: dict[tuple[int, str], SourceStats] = {}
        self._replicas_by_archive: dict[int, list[tuple[SourceStats, Replica]]] = {}
        self._indexed_sources: set[tuple[int, int]] = set()  # archive and id of the statistics, for the indexed URL
        self._excluded: dict[tuple[int, int], TransferError] = {}  # archive and id of the statistics: the reason
        self._discovery_lock = threading.Lock()

    def locations(self, archive_id: int) -> list[Location]:
        """Return the URLs of an archive, with credentials."""
        if self._archive_sources and not self._sources:
            return list(self._archive_sources[archive_id])
        archive = self._index.archives[archive_id]
        if not self._sources:
            return [Location(url) for url in (archive.url, *archive.mirrors)]
        if len(self._index.archives) == 1:
            return list(self._sources)
        name = archive.url.rpartition("/")[2]
        return [replace(source, url=f"{source.url.rpartition('/')[0]}/{name}") for source in self._sources]

    @property
    def are_all_local(self) -> bool:
        """Whether all servers run on this machine."""
        archive_ids = range(len(self._index.archives))
        return all(is_local_server(location.url) for archive in archive_ids for location in self.locations(archive))

    def discover(self, archive_id: int) -> None:
        """Find the replicas of an archive, if they are not known. May ask a director.

        Raises:
            TransferError: No replica was found.
        """
        with self._discovery_lock:
            if archive_id not in self._replicas_by_archive:
                replicas, url = self._resolve_replicas(archive_id), self._index.archives[archive_id].url
                with self.lock:
                    self._replicas_by_archive[archive_id] = replicas
                    self._indexed_sources.update(
                        (archive_id, id(stats))
                        for stats, replica in replicas
                        if strip_credentials(replica.location.url) == url
                    )

    def forget(self, archive_id: int) -> None:
        """Forget the replicas of an archive, so that `discover` looks for other ones."""
        self._replicas_by_archive.pop(archive_id, None)

    def choose(
        self, archive_id: int, now: float, avoid: Sequence[SourceStats] = ()
    ) -> tuple[SourceStats, Replica] | None:
        """Return the best replica that may be used now, or None.

        Args:
            archive_id: The archive, as a position in `Index.archives`.
            now: The current time, by time.monotonic.
            avoid: Servers to use only if there is no other.
        """
        replicas = self._replicas_by_archive.get(archive_id, ())
        allowed = {id(stats): replica for stats, replica in replicas if (archive_id, id(stats)) not in self._excluded}
        usable = [stats for stats in self.source_set.rank_usable(now) if id(stats) in allowed]
        best = next((stats for stats in usable if stats not in avoid), usable[0] if usable else None)
        return None if best is None else (best, allowed[id(best)])

    def stats_for(self, archive_id: int) -> list[SourceStats]:
        """Return the statistics of the servers of an archive."""
        return [stats for stats, _ in self._replicas_by_archive.get(archive_id, ())]

    def exclude(self, archive_id: int, source_stats: SourceStats, error: TransferError) -> None:
        """Never request this archive from this server again. Other archives may still come from it.

        Args:
            archive_id: The archive, as a position in `Index.archives`.
            source_stats: The server, which refused access or has a different archive.
            error: The reason.
        """
        source_stats.is_refused = False
        self._excluded[archive_id, id(source_stats)] = error

    def exclusion_errors(self, archive_id: int) -> list[TransferError]:
        """Return why all servers of an archive are excluded; an empty list if one is not."""
        replicas = self._replicas_by_archive.get(archive_id, ())
        errors = [self._excluded.get((archive_id, id(stats))) for stats, _ in replicas]
        return [error for error in errors if error] if None not in errors else []

    def sample_location(self, replica: Replica, sample: int) -> Location:
        """Return the URL that holds a sample at a replica."""
        if self._index.layout == LAYOUT_FILES:
            return replace(replica.location, url=join_url(replica.location.url, self._index.name(sample)))
        return replica.location

    def is_indexed_source(self, archive_id: int, source_stats: SourceStats) -> bool:
        """Return whether a server has the URL that was indexed, so that its ETag is known."""
        return (archive_id, id(source_stats)) in self._indexed_sources

    def _resolve_replicas(self, archive_id: int) -> list[tuple[SourceStats, Replica]]:
        replicas: list[tuple[SourceStats, Replica]] = []
        errors = []
        for rank, location in enumerate(self.locations(archive_id)):
            try:
                for replica in find_replicas(location, self._resolve_secret):
                    replicas.append((self._get_or_add_stats(rank, replica), replica))
            except TransferError as error:
                errors.append(error)
        if not replicas:
            raise combine_errors(errors)
        return replicas

    def _get_or_add_stats(self, rank: int, replica: Replica) -> SourceStats:
        key = rank, replica.label
        if key not in self._stats_by_label:
            self._stats_by_label[key] = SourceStats(replica, rank)
            self.source_set.source_stats.append(self._stats_by_label[key])
        return self._stats_by_label[key]
