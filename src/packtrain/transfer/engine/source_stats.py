"""Which server to ask next: a record of each, by moving speed, failures and rests. Pure: told what happened and when.

A server that fails rests, longer each time, and comes back. One that refuses for good, or has another
object, is not asked again. Those of last resort are asked only while all others fail, rest or give next to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from packtrain.errors import TransferError
from packtrain.transfer.api import Place
from packtrain.transfer.engine.response_limit import Reach
from packtrain.transfer.retry import FOR_GOOD

MOST_CONNECTIONS = 64
_FIRST_REST_S = 0.25
_LONGEST_REST_S = 15.0
_LONGEST_REST_ALONE_S = 1.0
_LONG_OUTAGE = 30  # failures in a row; after these even the only source is asked more seldom
_NO_SIGN_OF_LOAD = frozenset({"digest_mismatch", "truncated", "not_the_data"})
_OF_CREDENTIALS = frozenset({"token_refused", "secret_missing"})
_UNLUCKY = 5  # failures in a row of which a server need not be spared
_STALL_S = 2.0
_QUICK_STALL_S = 0.7
_QUICK_GAP_S = 0.1
_EXPECTED_STALL_S = 0.25  # where all answers of a place fall silent
_TOGETHER_S = 1.0
_FIRST_BYTE_S = 8.0
_UNTRIED_CONNECTIONS = 2  # to a place that has given nothing yet, while others give
_GAPS = 3.0  # times the longest pause that a place has made
_MOST_PATIENCE = 8.0  # times the limits above
_NEW_SPEED_SHARE = 0.2
LET_IN: set[str] = set()  # places that have given something to this process and its credentials
_EXPECTED: dict[str, float] = {}  # bytes a second, by host, as others saw them before


def expect(speeds: Mapping[str, float]) -> None:
    """What this process may expect of hosts: the quicker ones are asked first."""
    _EXPECTED.clear()
    _EXPECTED.update(speeds)


def _expected(place: Place) -> float:
    return _EXPECTED.get(urlsplit(f"//{place.label}").hostname or "", 0.0)


@dataclass(eq=False)
class Standing:
    """What is known of one place. `rank` is its order as the workflow and the director named it."""

    place: Place
    rank: int
    connections: int = 0
    most_connections: int = MOST_CONNECTIONS
    speed: float = 0.0  # bytes a second of one connection; 0: not known
    expected: float = 0.0  # bytes a second of a whole transfer, in earlier runs; 0: not known
    bytes: int = 0
    failures: int = 0
    failed_at: float = float("-inf")
    rests_until: float = float("-inf")
    moved_at: float = float("-inf")
    leniency: float = 1.0  # grows while the place is slow to answer as a whole
    longest_gap_s: float = 0.0  # between bytes that came in the end
    silent_at: float = float("-inf")  # when the last silence was noticed first
    error: TransferError | None = None
    refused: bool = False  # for good
    differs: bool = False  # has another object than the one begun
    gave: bool = False  # any byte, be it of a block that another place brought to its end
    suspect: bool = False  # gave bytes of a file that was wrong
    whole: bool = False  # has to be asked without a range
    reach: Reach = field(default_factory=Reach)

    def stall_s(self, leniency: float, came: int) -> float:
        """A place that never paused is found out sooner: what is here of a block is kept, so an error costs little."""
        if self.reach.bytes is not None and came >= self.reach.bytes:
            return _EXPECTED_STALL_S
        quick = self.bytes > 0 and self.longest_gap_s < _QUICK_GAP_S
        return max((_QUICK_STALL_S if quick else _STALL_S) * leniency, _GAPS * self.longest_gap_s)

    def first_byte_s(self, leniency: float) -> float:
        return _FIRST_BYTE_S * leniency

    @property
    def room(self) -> int:
        """How many connections it may have: one that has failed shows with a single one that it is well again."""
        return 1 if self.failures else self.most_connections

    def usable(self, now: float) -> bool:
        return not (self.refused or self.differs or self.resting(now))

    def resting(self, now: float) -> bool:
        return self.rests_until > now

    def delivered(self, count: int, took: float, now: float) -> None:
        """A block of so many bytes took so long on one connection."""
        if not self.bytes and has_credentials(self.place):
            LET_IN.add(self.place.label)
        self.bytes += count
        self.moved_at = now
        self.failures, self.error = 0, None
        self.leniency = max(1.0, self.leniency / 2)
        seen = count / max(took, 1e-6)
        self.speed = (1 - _NEW_SPEED_SHARE) * self.speed + _NEW_SPEED_SHARE * seen if self.speed else seen

    def silent(self, now: float, alone: bool, leniency: float, came: int) -> None:
        """A connection was given up for its silence. If all are silent and there is no other place, it is just slow.

        Several that began with the same leniency and end together are one silence, of a network for example: that
        tells nothing about how much one answer may be asked for."""
        if now - self.silent_at > _TOGETHER_S:
            self.reach.fell_silent(came)
            self.silent_at = now
        if alone and now - self.moved_at > self.stall_s(leniency, 0):
            self.leniency = max(self.leniency, min(2 * leniency, _MOST_PATIENCE))

    def failed(self, error: TransferError, began: float, now: float, alone: bool, patience_ends: float) -> None:
        """`began`: when the attempt did. Connections that die together are one failure."""
        self.error = error
        self.refused = self.refused or (error.kind in FOR_GOOD and not self._was_let_in(error))
        if began >= self.failed_at:
            self.failures += 1
        self.failed_at = now
        if error.retry_after_s is not None:
            self.most_connections = max(1, self.connections // 2)
        self.rests_until = max(self.rests_until, now + self._rest_s(error, alone, patience_ends - now))

    def _was_let_in(self, error: TransferError) -> bool:
        """Then the token has run out in mid-run: it is renewed under a running job, and read anew each time.

        Its file may be missing for a moment meanwhile."""
        return error.kind in _OF_CREDENTIALS and (self.bytes > 0 or self.place.label in LET_IN)

    def _rest_s(self, error: TransferError, alone: bool, left: float) -> float:
        longest = _LONGEST_REST_ALONE_S if alone and self.failures < _LONG_OUTAGE else _LONGEST_REST_S
        if left <= 0:
            return longest  # it had its last chance, unless others bring something meanwhile
        doublings = min(self.failures - 1, 10)
        if alone and error.kind in _NO_SIGN_OF_LOAD:
            doublings = max(0, doublings - _UNLUCKY)
        rest = min(_FIRST_REST_S * 2.0**doublings, longest)
        return min(max(rest, error.retry_after_s or 0.0), left)


def has_credentials(place: Place) -> bool:
    """The ref's, or those that a federation's server wants and the machine has."""
    ref = place.ref
    signed = ref.s3 is not None and ref.s3.access_key is not None
    return signed or ref.token is not None or bool(ref.headers) or getattr(place.source, "needs_token", False)


class Sources:
    """All places of one item."""

    def __init__(self) -> None:
        self.standings: list[Standing] = []
        self.trickle = False  # next to nothing comes from them

    def add(self, rank: int, places: Sequence[Place]) -> None:
        """What one address of the workflow stands for now; places known already keep their record."""
        known = {(standing.rank, standing.place.label, standing.place.ref.url) for standing in self.standings}
        for place in places:
            if (rank, place.label, place.ref.url) not in known:
                self.standings.append(Standing(place, rank, expected=_expected(place)))
        self.standings.sort(key=lambda standing: standing.rank)

    def choose(self, now: float) -> Standing | None:
        return next(iter(self.ranked(now)), None)

    def ranked(self, now: float) -> list[Standing]:
        """Those that may be asked now, the best first."""
        usable = [standing for standing in self.standings if standing.usable(now)]
        usable = [s for s in usable if not s.suspect] or usable
        free = [s for s in usable if s.connections < s.room]
        free = [s for s in free if self.trickle or not s.place.last_resort] or free
        best = max((s.speed for s in free), default=0.0)
        if best:
            free = [s for s in free if s.speed or s.connections < _UNTRIED_CONNECTIONS]
        # Connections are shared out by speed; the untried are taken to be as good as the best, unless more is known.
        most = max((s.expected for s in free), default=0.0)
        hopes = {id(s): (best or 1.0) * (s.expected / most if s.expected else 1.0) for s in free}
        worth = {id(s): (s.speed or hopes[id(s)]) * 0.5**s.failures / (s.connections + 1) for s in free}
        return sorted(free, key=lambda s: worth[id(s)], reverse=True)

    def alone(self, standing: Standing, now: float) -> bool:
        return not any(other.usable(now) for other in self.standings if other is not standing)

    def beginning_anew(self) -> None:
        """Another object than the first is taken: those that differed are asked again."""
        for standing in self.standings:
            standing.differs = False
