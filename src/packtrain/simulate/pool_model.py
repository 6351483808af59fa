"""What a pool is like: sites, their caches, what fails how often. Frozen; `calibrate` makes it, `whatif` changes it."""

from __future__ import annotations

from dataclasses import dataclass

from packtrain.simulate.empirical import NOTHING, Fitted

MACHINE, DATA, PROGRAM = "machine", "data", "program"


@dataclass(frozen=True)
class Fault:
    """What spoils a stay: the machine, the data that came, or the program itself."""

    kind: str  # MACHINE, DATA, PROGRAM
    chance: float  # of a stay
    seconds: Fitted  # that a program runs before it ends because of it
    reason: str = ""


@dataclass(frozen=True)
class Site:
    name: str
    slots: int
    compute: Fitted  # seconds for a whole job, drawn for each stay: machines of a site differ
    cold: Fitted  # seconds of a transfer of the inputs
    warm: Fitted  # of one whose data the cache has already
    stalls: float = 0.0  # the chance that a stay begins while its cache sends nothing
    episode: Fitted = NOTHING  # how much longer that lasts
    evictions: float = 0.0  # by second on a slot
    overhead: Fitted = NOTHING  # seconds of a slot beyond transfers and computing
    faults: tuple[Fault, ...] = ()
    cache: str = ""  # where its data come from; the same name: the same cache
    streams: int = 0  # transfers that its cache serves at once; others wait. 0: any number
    opens: Fitted = NOTHING  # when its slots are there, in seconds since the run began


@dataclass(frozen=True)
class Bursts:
    """A service that restarts: transfers that begin then are told that there is no such object (404)."""

    chance: float = 0.0  # that a transfer is the first that is struck
    victims: Fitted = NOTHING  # how many are, if as many begin in time
    seconds: Fitted = NOTHING  # how long it lasts


@dataclass(frozen=True)
class World:
    name: str
    jobs: int  # that were seen
    sites: tuple[Site, ...]
    bursts: Bursts = Bursts()
    match: Fitted = NOTHING  # seconds from being in the queue to a slot that is free
    timer_s: float = 3600.0  # after which the pool ends a transfer, and begins it again
    limit_s: float | None = None  # after which the pool ends a program
    shares_warmth: bool = True  # the first transfer that came whole warms the cache for all; else for its job only
    most_running: int = 10_000  # of one user
    starts_per_s: float = 20.0  # that an access point manages
    lost: float = 0.0  # share of the seen jobs of which no one knows how they ended; they are not simulated

    @property
    def slots(self) -> int:
        return sum(site.slots for site in self.sites)
