"""The model of a pool: sites, caches and failure rates. `calibrate` creates it, `whatif` changes it."""

from __future__ import annotations

from dataclasses import dataclass

from packtrain.simulate.empirical import ZERO, EmpiricalDistribution

NODE, DATA, PROGRAM = "node", "data", "program"


@dataclass(frozen=True)
class Fault:
    """A fault of the node, of the received data, or of the program that ends a session."""

    kind: str  # NODE, DATA, PROGRAM
    probability: float  # per session
    duration_s: EmpiricalDistribution  # run time of the program until the fault ends it
    reason: str = ""


@dataclass(frozen=True)
class SiteModel:
    """One site: its slots, speeds and failure rates."""

    name: str
    n_slots: int
    compute_s: EmpiricalDistribution  # compute time of a whole job, sampled per session because nodes differ
    cold_transfer_s: EmpiricalDistribution  # transfer time of the inputs
    warm_transfer_s: EmpiricalDistribution  # the same if the cache already has the data
    stall_probability: float = 0.0  # probability that a session starts while its cache sends nothing
    stall_s: EmpiricalDistribution = ZERO  # how much longer the stall lasts
    evictions_per_s: float = 0.0  # per second on a slot
    overhead_s: EmpiricalDistribution = ZERO  # slot time beyond transfers and computing
    faults: tuple[Fault, ...] = ()
    cache_name: str = ""  # sites with the same name share a cache
    max_streams: int = 0  # concurrent transfers that the cache serves; 0: unlimited
    slots_open_at: EmpiricalDistribution = ZERO  # when slots become available, in seconds after the start of the run


@dataclass(frozen=True)
class OutageModel:
    """Restarts of a service: transfers that start during an outage receive a 404."""

    start_probability: float = 0.0  # probability that an outage starts with a given transfer
    n_transfers: EmpiricalDistribution = ZERO  # how many transfers it affects at most
    duration_s: EmpiricalDistribution = ZERO


@dataclass(frozen=True)
class PoolModel:
    """A whole pool."""

    name: str
    n_observed_jobs: int
    sites: tuple[SiteModel, ...]
    outages: OutageModel = OutageModel()
    match_delay_s: EmpiricalDistribution = ZERO  # delay from queueing to a match while slots are free
    transfer_timeout_s: float = 3600.0  # after which the pool aborts a transfer and restarts it
    time_limit_s: float | None = None  # after which the pool stops a program
    has_shared_caches: bool = True  # a complete transfer warms the cache for all jobs; else for its own job only
    max_running: int = 10_000  # jobs of one user
    max_starts_per_s: float = 20.0  # job start rate of the access point
    lost_share: float = 0.0  # share of observed jobs with an unknown end, which are not simulated

    @property
    def n_slots(self) -> int:
        return sum(site.n_slots for site in self.sites)
