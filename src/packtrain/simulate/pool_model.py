"""What a pool is like: sites, their caches, what fails how often. Frozen; `calibrate` makes it, `whatif` changes it."""

from __future__ import annotations

from dataclasses import dataclass

from packtrain.simulate.empirical import ZERO, EmpiricalDistribution

NODE, DATA, PROGRAM = "machine", "data", "program"


@dataclass(frozen=True)
class Fault:
    """What spoils a stay: the machine, the data that came, or the program itself."""

    kind: str  # MACHINE, DATA, PROGRAM
    probability: float  # of a stay
    duration_s: EmpiricalDistribution  # that a program runs before it ends because of it
    reason: str = ""


@dataclass(frozen=True)
class SiteModel:
    name: str
    n_slots: int
    compute_s: EmpiricalDistribution  # seconds for a whole job, drawn for each stay: machines of a site differ
    cold_transfer_s: EmpiricalDistribution  # seconds of a transfer of the inputs
    warm_transfer_s: EmpiricalDistribution  # of one whose data the cache has already
    stall_probability: float = 0.0  # the chance that a stay begins while its cache sends nothing
    stall_s: EmpiricalDistribution = ZERO  # how much longer that lasts
    evictions_per_s: float = 0.0  # by second on a slot
    overhead_s: EmpiricalDistribution = ZERO  # seconds of a slot beyond transfers and computing
    faults: tuple[Fault, ...] = ()
    cache_name: str = ""  # where its data come from; the same name: the same cache
    max_streams: int = 0  # transfers that its cache serves at once; others wait. 0: any number
    slots_open_at: EmpiricalDistribution = ZERO  # when its slots are there, in seconds since the run began


@dataclass(frozen=True)
class OutageModel:
    """A service that restarts: transfers that begin then are told that there is no such object (404)."""

    start_probability: float = 0.0  # that a transfer is the first that is struck
    n_transfers: EmpiricalDistribution = ZERO  # how many are, if as many begin in time
    duration_s: EmpiricalDistribution = ZERO  # how long it lasts


@dataclass(frozen=True)
class PoolModel:
    name: str
    n_observed_jobs: int  # that were seen
    sites: tuple[SiteModel, ...]
    outages: OutageModel = OutageModel()
    match_delay_s: EmpiricalDistribution = ZERO  # seconds from being in the queue to a slot that is free
    transfer_timeout_s: float = 3600.0  # after which the pool ends a transfer, and begins it again
    time_limit_s: float | None = None  # after which the pool ends a program
    has_shared_caches: bool = True  # the first transfer that came whole warms the cache for all; else for its job only
    max_running: int = 10_000  # of one user
    max_starts_per_s: float = 20.0  # that an access point manages
    lost_share: float = 0.0  # share of the seen jobs of which no one knows how they ended; they are not simulated

    @property
    def n_slots(self) -> int:
        return sum(site.n_slots for site in self.sites)
