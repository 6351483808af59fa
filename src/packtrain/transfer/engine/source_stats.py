"""The sources of a file: speed, failures, backoff and timeouts of each, and the choice of the next one.

Pure: the caller passes the events and the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from packtrain.backoff import Backoff
from packtrain.errors import TransferError
from packtrain.transfer.api import Replica
from packtrain.transfer.credentials import AUTHORIZED_HOSTS, has_credentials
from packtrain.transfer.retry import PERMANENT_KINDS

MAX_CONNECTIONS_PER_SOURCE = 64
_BACKOFF = Backoff(0.25, 15.0)
_ONLY_SOURCE_BACKOFF = Backoff(0.25, 1.0)
_LONG_OUTAGE_FAILURES = 30  # consecutive failures after which even the only source backs off longer
_KINDS_UNRELATED_TO_LOAD = frozenset({"digest_mismatch", "truncated", "unexpected_content"})
_CREDENTIAL_KINDS = frozenset({"access_denied", "secret_missing"})
_FAILURES_WITHOUT_BACKOFF = 5  # consecutive failures unrelated to load that do not lengthen the backoff
_MAX_UNEXPECTED_RESPONSES = 3
_STALL_TIMEOUT_S = 2.0
_STEADY_STALL_TIMEOUT_S = 0.7  # for a source that has never paused
_MAX_STEADY_GAP_S = 0.1
_EXPECTED_STALL_TIMEOUT_S = 0.25  # for a response that has reached the response limit
_SIMULTANEOUS_STALL_S = 1.0
_FIRST_BYTE_TIMEOUT_S = 8.0
_STALL_GAP_FACTOR = 3.0  # stall timeout as a multiple of the longest gap of the source
_MAX_TIMEOUT_FACTOR = 8.0
_SPEED_EMA_WEIGHT = 0.2
_RAISE_AFTER_RESPONSES = 32  # complete responses after which the response limit is raised
_RAISE_AFTER_FACTOR = 4  # factor for that number after each stall that a raised limit caused
_UNLIMITED_BYTES = 1 << 30
_MAX_UNTRIED_CONNECTIONS = 2  # to a source that has sent nothing yet, while others send
_EXPECTED_SPEEDS: dict[str, float] = {}  # bytes per second by host, measured by earlier jobs


def set_expected_speeds(speeds: Mapping[str, float]) -> None:
    """Set the speeds in bytes per second that this process may expect of hosts; faster hosts are tried first."""
    _EXPECTED_SPEEDS.clear()
    _EXPECTED_SPEEDS.update(speeds)


def expected_speed(replica: Replica) -> float:
    """Return the expected speed of a replica in bytes per second; 0 if unknown."""
    return _EXPECTED_SPEEDS.get(urlsplit(f"//{replica.label}").hostname or "", 0.0)


class ResponseLimit:
    """The number of bytes that one response of a source may be asked for.

    Some servers, and some middleboxes, let every response stall after a certain number of bytes. Each stall costs the
    time until it is noticed, while shorter responses cost almost nothing.
    """

    def __init__(self) -> None:
        self.max_bytes: int | None = None  # None: no limit
        self._last_stall_bytes: int | None = None
        self._n_complete, self._n_complete_to_raise = 0, _RAISE_AFTER_RESPONSES

    def record_stall(self, received_bytes: int) -> None:
        """Record that a response stalled; two consecutive stalls set the limit, since one may be an accident."""
        if not received_bytes:
            return
        if self.max_bytes is not None:
            self._n_complete_to_raise *= _RAISE_AFTER_FACTOR
        if self._last_stall_bytes is not None:
            self.max_bytes = min(received_bytes, self._last_stall_bytes)
        self._last_stall_bytes, self._n_complete = received_bytes, 0

    def record_cutoff(self, received_bytes: int) -> None:
        """Record that several responses stalled after the same number of bytes, which a slow network does not cause."""
        if self.max_bytes is None or received_bytes < self.max_bytes:
            self.max_bytes = self._last_stall_bytes = received_bytes

    def record_complete(self, received_bytes: int) -> None:
        """Record that a response delivered everything; after many of them the limit is raised."""
        if self.max_bytes is None:
            if self._last_stall_bytes is not None and received_bytes > self._last_stall_bytes:
                self._last_stall_bytes = None
            return
        self._n_complete += 1
        if self._n_complete >= self._n_complete_to_raise:
            self.max_bytes, self._n_complete = (2 * self.max_bytes if self.max_bytes < _UNLIMITED_BYTES else None), 0


@dataclass(eq=False)
class SourceStats:
    """Statistics of one replica of the file."""

    replica: Replica
    rank: int  # position of its address in the workflow
    connections: int = 0
    max_connections: int = MAX_CONNECTIONS_PER_SOURCE
    bytes_per_s: float = 0.0  # moving average of one connection; 0: unknown
    expected_bytes_per_s: float = 0.0  # of a complete transfer in earlier runs; 0: unknown
    received_bytes: int = 0  # of complete blocks
    n_failures: int = 0  # consecutive
    failed_at: float = float("-inf")
    backoff_ends_at: float = float("-inf")
    last_block_at: float = float("-inf")
    timeout_factor: float = 1.0  # grows while the source as a whole responds slowly
    max_gap_s: float = 0.0  # longest gap between bytes of one response
    last_stall_at: float = float("-inf")
    last_error: TransferError | None = None
    is_refused: bool = False  # permanently
    has_different_object: bool = False  # than the one that is being downloaded
    has_sent_bytes: bool = False  # including blocks that another source completed
    is_suspect: bool = False  # sent bytes of a file whose digest was wrong
    needs_full_request: bool = False  # must be requested without a range
    response_limit: ResponseLimit = field(default_factory=ResponseLimit)

    def stall_timeout_s(self, timeout_factor: float, received_bytes: int) -> float:
        """Return how long a response may be silent before it counts as stalled.

        A source that has never paused gets a short timeout. A wrong guess costs little, because the received part of
        the block is kept.

        Args:
            timeout_factor: The factor when the request started.
            received_bytes: Bytes of the response so far.
        """
        if self.response_limit.max_bytes is not None and received_bytes >= self.response_limit.max_bytes:
            return _EXPECTED_STALL_TIMEOUT_S
        is_steady = self.received_bytes > 0 and self.max_gap_s < _MAX_STEADY_GAP_S
        timeout_s = _STEADY_STALL_TIMEOUT_S if is_steady else _STALL_TIMEOUT_S
        return max(timeout_s * timeout_factor, _STALL_GAP_FACTOR * self.max_gap_s)

    def first_byte_timeout_s(self, timeout_factor: float) -> float:
        """Return how long to wait for the first byte of a response."""
        return _FIRST_BYTE_TIMEOUT_S * timeout_factor

    @property
    def allowed_connections(self) -> int:
        """The maximum number of connections; one after a failure, until a block proves that the source recovered."""
        return 1 if self.n_failures else self.max_connections

    def is_usable(self, now: float) -> bool:
        """Return whether the source may receive requests now."""
        return not (self.is_refused or self.has_different_object or self.is_backing_off(now))

    def is_backing_off(self, now: float) -> bool:
        """Return whether the source is backing off after a failure."""
        return self.backoff_ends_at > now

    def has_served_object(self) -> bool:
        """Return whether the source sent our object recently; then one unexpected response is an accident."""
        return self.received_bytes > 0 and self.n_failures < _MAX_UNEXPECTED_RESPONSES

    def record_block(self, n_bytes: int, duration_s: float, now: float) -> None:
        """Record a block of `n_bytes` that one connection received in `duration_s`."""
        if not self.received_bytes and self._uses_credentials():
            AUTHORIZED_HOSTS.add(self.replica.label)
        self.received_bytes += n_bytes
        self.last_block_at = now
        self.n_failures, self.last_error = 0, None
        self.timeout_factor = max(1.0, self.timeout_factor / 2)
        speed = n_bytes / max(duration_s, 1e-6)
        self.bytes_per_s = (
            (1 - _SPEED_EMA_WEIGHT) * self.bytes_per_s + _SPEED_EMA_WEIGHT * speed if self.bytes_per_s else speed
        )

    def _uses_credentials(self) -> bool:
        """Return whether requests carry credentials of the location, or a token of the machine for a federation."""
        return has_credentials(self.replica.location) or bool(getattr(self.replica.source, "needs_token", False))

    def record_stall(self, now: float, is_only_source: bool, timeout_factor: float, received_bytes: int) -> None:
        """Record that a connection was closed because it was silent.

        Stalls within a second of each other count once for the response limit: they are an outage of the network, for
        example. If the only source is silent on all connections, it is slow, and its timeouts grow.

        Args:
            now: The time.
            is_only_source: No other source is usable.
            timeout_factor: The factor when the request started.
            received_bytes: Bytes of the response before the stall.
        """
        if now - self.last_stall_at > _SIMULTANEOUS_STALL_S:
            self.response_limit.record_stall(received_bytes)
            self.last_stall_at = now
        if is_only_source and now - self.last_block_at > self.stall_timeout_s(timeout_factor, 0):
            self.timeout_factor = max(self.timeout_factor, min(2 * timeout_factor, _MAX_TIMEOUT_FACTOR))

    def record_failure(
        self, error: TransferError, started_at: float, now: float, is_only_source: bool, retry_ends_at: float
    ) -> None:
        """Record a failed request. Requests that fail together count as one failure.

        Args:
            error: The failure.
            started_at: When the request started.
            now: The time.
            is_only_source: No other source is usable.
            retry_ends_at: When the retry timeout expires.
        """
        self.last_error = error
        self.is_refused = self.is_refused or (error.kind in PERMANENT_KINDS and not self._had_access(error))
        if started_at >= self.failed_at:
            self.n_failures += 1
        self.failed_at = now
        if error.retry_after_s is not None:
            self.max_connections = max(1, self.connections // 2)
        self.backoff_ends_at = max(
            self.backoff_ends_at, now + self._backoff_s(error, is_only_source, retry_ends_at - now)
        )

    def _had_access(self, error: TransferError) -> bool:
        """Return whether the credentials were accepted before: the token expired, or its file is being replaced."""
        return error.kind in _CREDENTIAL_KINDS and (self.received_bytes > 0 or self.replica.label in AUTHORIZED_HOSTS)

    def _backoff_s(self, error: TransferError, is_only_source: bool, remaining_s: float) -> float:
        is_short = is_only_source and self.n_failures < _LONG_OUTAGE_FAILURES
        backoff = _ONLY_SOURCE_BACKOFF if is_short else _BACKOFF
        if remaining_s <= 0:
            return backoff.max_s  # the retry timeout expired, unless another source makes progress meanwhile
        n_failures = self.n_failures
        if is_only_source and error.kind in _KINDS_UNRELATED_TO_LOAD:
            n_failures -= _FAILURES_WITHOUT_BACKOFF
        return min(max(backoff.delay_s(max(1, n_failures)), error.retry_after_s or 0.0), remaining_s)


class SourceSelector:
    """All sources of one file.

    A source that fails backs off, longer each time. One that refused permanently or has a different object is not used
    again. Fallback sources are used only while all others fail, back off or starve.
    """

    def __init__(self) -> None:
        self.source_stats: list[SourceStats] = []
        self.is_starved = False  # all sources together are almost silent

    def add(self, rank: int, replicas: Sequence[Replica]) -> None:
        """Add the replicas of one address; replicas that are known already keep their statistics.

        Args:
            rank: The position of the address in the workflow.
            replicas: The servers that have the object, the best first.
        """
        known = {(source.rank, source.replica.label, source.replica.location.url) for source in self.source_stats}
        for replica in replicas:
            if (rank, replica.label, replica.location.url) not in known:
                self.source_stats.append(SourceStats(replica, rank, expected_bytes_per_s=expected_speed(replica)))
        self.source_stats.sort(key=lambda source: source.rank)

    def choose(self, now: float) -> SourceStats | None:
        """Return the best usable source, or None."""
        return next(iter(self.rank_usable(now)), None)

    def rank_usable(self, now: float) -> list[SourceStats]:
        """Return the sources that may receive a request now, the best first."""
        usable = [source for source in self.source_stats if source.is_usable(now)]
        usable = [s for s in usable if not s.is_suspect] or usable
        free = [s for s in usable if s.connections < s.allowed_connections]
        free = [s for s in free if self.is_starved or not s.replica.is_fallback] or free
        best = max((s.bytes_per_s for s in free), default=0.0)
        if best:
            free = [s for s in free if s.bytes_per_s or s.connections < _MAX_UNTRIED_CONNECTIONS]
        # Connections are distributed by speed. An untried source counts as the best one, scaled by its expected speed.
        best_expected = max((s.expected_bytes_per_s for s in free), default=0.0)
        assumed = {
            id(s): (best or 1.0) * (s.expected_bytes_per_s / best_expected if s.expected_bytes_per_s else 1.0)
            for s in free
        }
        scores = {id(s): (s.bytes_per_s or assumed[id(s)]) * 0.5**s.n_failures / (s.connections + 1) for s in free}
        return sorted(free, key=lambda s: scores[id(s)], reverse=True)

    def is_only_usable(self, source_stats: SourceStats, now: float) -> bool:
        """Return whether no other source is usable."""
        return not any(other.is_usable(now) for other in self.source_stats if other is not source_stats)

    def reset_different_objects(self) -> None:
        """Allow the sources that had a different object, because the download starts over."""
        for source in self.source_stats:
            source.has_different_object = False

    def bytes_by_label(self) -> dict[str, int]:
        """Return the bytes of blocks received from each server."""
        totals: dict[str, int] = {}
        for source in self.source_stats:
            totals[source.replica.label] = totals.get(source.replica.label, 0) + source.received_bytes
        return totals
