"""Which server to ask next: a record of each, by moving speed, failures and rests. Pure: told what happened and when.

A server that fails rests, longer each time, and comes back. One that refuses for good, or has another
object, is not asked again. Those of last resort are asked only while all others fail, rest or give next to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from packtrain.errors import TransferError
from packtrain.transfer.api import Replica
from packtrain.transfer.engine.response_limit import ResponseLimit
from packtrain.transfer.retry import PERMANENT_KINDS

MAX_CONNECTIONS_PER_SOURCE = 64
_INITIAL_BACKOFF_S = 0.25
_MAX_BACKOFF_S = 15.0
_MAX_ONLY_SOURCE_BACKOFF_S = 1.0
_LONG_OUTAGE_FAILURES = 30  # failures in a row; after these even the only source is asked more seldom
_KINDS_UNRELATED_TO_LOAD = frozenset({"digest_mismatch", "truncated", "unexpected_content"})
_CREDENTIAL_KINDS = frozenset({"access_denied", "secret_missing"})
_FAILURES_WITHOUT_BACKOFF = 5  # failures in a row of which a server need not be spared
_STALL_TIMEOUT_S = 2.0
_STEADY_STALL_TIMEOUT_S = 0.7
_MAX_STEADY_GAP_S = 0.1
_EXPECTED_STALL_TIMEOUT_S = 0.25  # where all answers of a place fall silent
_SIMULTANEOUS_STALL_S = 1.0
_FIRST_BYTE_TIMEOUT_S = 8.0
_MAX_UNTRIED_CONNECTIONS = 2  # to a place that has given nothing yet, while others give
_STALL_GAP_FACTOR = 3.0  # times the longest pause that a place has made
_MAX_TIMEOUT_FACTOR = 8.0  # times the limits above
_SPEED_EMA_WEIGHT = 0.2
AUTHORIZED_HOSTS: set[str] = set()  # places that have given something to this process and its credentials
_EXPECTED_SPEEDS: dict[str, float] = {}  # bytes a second, by host, as others saw them before


def set_expected_speeds(speeds: Mapping[str, float]) -> None:
    """What this process may expect of hosts: the quicker ones are asked first."""
    _EXPECTED_SPEEDS.clear()
    _EXPECTED_SPEEDS.update(speeds)


def _expected_speed(replica: Replica) -> float:
    return _EXPECTED_SPEEDS.get(urlsplit(f"//{replica.label}").hostname or "", 0.0)


@dataclass(eq=False)
class SourceStats:
    """What is known of one place. `rank` is its order as the workflow and the director named it."""

    replica: Replica
    rank: int
    connections: int = 0
    max_connections: int = MAX_CONNECTIONS_PER_SOURCE
    bytes_per_s: float = 0.0  # bytes a second of one connection; 0: not known
    expected_bytes_per_s: float = 0.0  # bytes a second of a whole transfer, in earlier runs; 0: not known
    received_bytes: int = 0
    n_failures: int = 0
    failed_at: float = float("-inf")
    backoff_ends_at: float = float("-inf")
    last_block_at: float = float("-inf")
    timeout_factor: float = 1.0  # grows while the place is slow to answer as a whole
    max_gap_s: float = 0.0  # between bytes that came in the end
    last_stall_at: float = float("-inf")  # when the last silence was noticed first
    last_error: TransferError | None = None
    is_refused: bool = False  # for good
    has_different_object: bool = False  # has another object than the one begun
    has_sent_bytes: bool = False  # any byte, be it of a block that another place brought to its end
    is_suspect: bool = False  # gave bytes of a file that was wrong
    needs_full_request: bool = False  # has to be asked without a range
    response_limit: ResponseLimit = field(default_factory=ResponseLimit)

    def stall_timeout_s(self, timeout_factor: float, received_bytes: int) -> float:
        """A place that never paused is found out sooner: what is here of a block is kept, so an error costs little."""
        if self.response_limit.max_bytes is not None and received_bytes >= self.response_limit.max_bytes:
            return _EXPECTED_STALL_TIMEOUT_S
        quick = self.received_bytes > 0 and self.max_gap_s < _MAX_STEADY_GAP_S
        return max(
            (_STEADY_STALL_TIMEOUT_S if quick else _STALL_TIMEOUT_S) * timeout_factor,
            _STALL_GAP_FACTOR * self.max_gap_s,
        )

    def first_byte_timeout_s(self, timeout_factor: float) -> float:
        return _FIRST_BYTE_TIMEOUT_S * timeout_factor

    @property
    def allowed_connections(self) -> int:
        """How many connections it may have: one that has failed shows with a single one that it is well again."""
        return 1 if self.n_failures else self.max_connections

    def is_usable(self, now: float) -> bool:
        return not (self.is_refused or self.has_different_object or self.is_backing_off(now))

    def is_backing_off(self, now: float) -> bool:
        return self.backoff_ends_at > now

    def record_block(self, n_bytes: int, duration_s: float, now: float) -> None:
        """A block of so many bytes took so long on one connection."""
        if not self.received_bytes and has_credentials(self.replica):
            AUTHORIZED_HOSTS.add(self.replica.label)
        self.received_bytes += n_bytes
        self.last_block_at = now
        self.n_failures, self.last_error = 0, None
        self.timeout_factor = max(1.0, self.timeout_factor / 2)
        seen = n_bytes / max(duration_s, 1e-6)
        self.bytes_per_s = (
            (1 - _SPEED_EMA_WEIGHT) * self.bytes_per_s + _SPEED_EMA_WEIGHT * seen if self.bytes_per_s else seen
        )

    def record_stall(self, now: float, is_only_source: bool, timeout_factor: float, received_bytes: int) -> None:
        """A connection was given up for its silence. If all are silent and there is no other place, it is just slow.

        Several that began with the same leniency and end together are one silence, of a network for example: that
        tells nothing about how much one answer may be asked for."""
        if now - self.last_stall_at > _SIMULTANEOUS_STALL_S:
            self.response_limit.record_stall(received_bytes)
            self.last_stall_at = now
        if is_only_source and now - self.last_block_at > self.stall_timeout_s(timeout_factor, 0):
            self.timeout_factor = max(self.timeout_factor, min(2 * timeout_factor, _MAX_TIMEOUT_FACTOR))

    def record_failure(
        self, error: TransferError, started_at: float, now: float, is_only_source: bool, retry_ends_at: float
    ) -> None:
        """`began`: when the attempt did. Connections that die together are one failure."""
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
        """Then the token has run out in mid-run: it is renewed under a running job, and read anew each time.

        Its file may be missing for a moment meanwhile."""
        return error.kind in _CREDENTIAL_KINDS and (self.received_bytes > 0 or self.replica.label in AUTHORIZED_HOSTS)

    def _backoff_s(self, error: TransferError, is_only_source: bool, remaining_s: float) -> float:
        longest = (
            _MAX_ONLY_SOURCE_BACKOFF_S if is_only_source and self.n_failures < _LONG_OUTAGE_FAILURES else _MAX_BACKOFF_S
        )
        if remaining_s <= 0:
            return longest  # it had its last chance, unless others bring something meanwhile
        doublings = min(self.n_failures - 1, 10)
        if is_only_source and error.kind in _KINDS_UNRELATED_TO_LOAD:
            doublings = max(0, doublings - _FAILURES_WITHOUT_BACKOFF)
        rest = min(_INITIAL_BACKOFF_S * 2.0**doublings, longest)
        return min(max(rest, error.retry_after_s or 0.0), remaining_s)


def has_credentials(replica: Replica) -> bool:
    """The ref's, or those that a federation's server wants and the machine has."""
    ref = replica.location
    signed = ref.s3 is not None and ref.s3.access_key is not None
    return signed or ref.token is not None or bool(ref.headers) or getattr(replica.source, "needs_token", False)


class SourceSelector:
    """All places of one item."""

    def __init__(self) -> None:
        self.source_stats: list[SourceStats] = []
        self.is_starved = False  # next to nothing comes from them

    def add(self, rank: int, replicas: Sequence[Replica]) -> None:
        """What one address of the workflow stands for now; places known already keep their record."""
        known = {
            (standing.rank, standing.replica.label, standing.replica.location.url) for standing in self.source_stats
        }
        for place in replicas:
            if (rank, place.label, place.location.url) not in known:
                self.source_stats.append(SourceStats(place, rank, expected_bytes_per_s=_expected_speed(place)))
        self.source_stats.sort(key=lambda standing: standing.rank)

    def choose(self, now: float) -> SourceStats | None:
        return next(iter(self.rank_usable(now)), None)

    def rank_usable(self, now: float) -> list[SourceStats]:
        """Those that may be asked now, the best first."""
        usable = [standing for standing in self.source_stats if standing.is_usable(now)]
        usable = [s for s in usable if not s.is_suspect] or usable
        free = [s for s in usable if s.connections < s.allowed_connections]
        free = [s for s in free if self.is_starved or not s.replica.is_fallback] or free
        best = max((s.bytes_per_s for s in free), default=0.0)
        if best:
            free = [s for s in free if s.bytes_per_s or s.connections < _MAX_UNTRIED_CONNECTIONS]
        # Connections are shared out by speed; the untried are taken to be as good as the best, unless more is known.
        most = max((s.expected_bytes_per_s for s in free), default=0.0)
        hopes = {
            id(s): (best or 1.0) * (s.expected_bytes_per_s / most if s.expected_bytes_per_s else 1.0) for s in free
        }
        worth = {id(s): (s.bytes_per_s or hopes[id(s)]) * 0.5**s.n_failures / (s.connections + 1) for s in free}
        return sorted(free, key=lambda s: worth[id(s)], reverse=True)

    def is_only_usable(self, source_stats: SourceStats, now: float) -> bool:
        return not any(other.is_usable(now) for other in self.source_stats if other is not source_stats)

    def reset_different_objects(self) -> None:
        """Another object than the first is taken: those that differed are asked again."""
        for standing in self.source_stats:
            standing.has_different_object = False
