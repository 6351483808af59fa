"""The pool of the week: a machine of HTCondor for each one that fate made, open when fate says so."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from harness.measure import tell
from harness.week.caches import OUTSIDE, Caches
from harness.week.fault_schedule import Machine, Week
from testbed import addresses
from testbed.condor_config import Site
from testbed.condor_pool import Pool

_UP_S = 240.0
_NOTICE_S = 20.0  # between the decision that a week begins and its beginning: a hundred machines have to hear of it
_NEVER = 4_000_000_000
# HTCondor's timer for transfers started jobs again in the published week; today it holds them, so the pool lets them go
# at once. They were started again where they had been: a job with 28 stalls never left its site.
KILLED = "HoldReasonCode == 13 && HoldReasonSubCode == 62"
# While machines come up, each one is for one job of a submission: none takes the place of a job that is started again.
_OWN_MACHINE = "(time() > $(WEEK_BEGAN) + {last:.1f} || (TARGET.TotalSubmitProcs > 1) =!= true || TARGET.ProcId == {n})"
_SAME_MACHINE = "(TARGET.LastHoldReasonSubCode =!= 62 || TARGET.LastRemoteHost =?= MY.Name)"
# A hundred machines on one host: what is asked each second elsewhere is asked more seldom.
_SETTINGS = """
SLOT_TYPE_1_PARTITIONABLE = False
SINGULARITY =
UPDATE_INTERVAL = 60
CLASSAD_LIFETIME = 600
POLLING_INTERVAL = 5
STARTER_UPDATE_INTERVAL = 20
STARTER_UPDATE_INTERVAL_MAX = 40
SHADOW_QUEUE_UPDATE_INTERVAL = 20
COLLECTOR_UPDATE_INTERVAL = 60
SYSTEM_PERIODIC_RELEASE = {killed}
JOB_TRANSFORM_NAMES = Limit
JOB_TRANSFORM_Limit @=end
    REQUIREMENTS JobUniverse == 5
    SET AllowedExecuteDuration {limit_s}
@end
WEEK_BEGAN = {never}
include ifexist : {knobs}
"""
_GPUS = {"CHTC": ("NVIDIA A100-SXM4-40GB", 40536, 8.0), "PDX": ("Tesla V100-PCIE-16GB", 16160, 7.0)}
_OTHER_GPU = "NVIDIA GeForce RTX 2080 Ti", 11019, 7.5


def site_of(machine: Machine, last: float) -> Site:
    """`last`: when the last machine comes up."""
    gpu = _GPUS.get(machine.site.split("-")[0], _OTHER_GPU)
    gone = [f"(time() < $(WEEK_BEGAN) + {a:.1f} || time() >= $(WEEK_BEGAN) + {b:.1f})" for a, b in machine.closed]
    opens = f"(time() >= $(WEEK_BEGAN) + {machine.opens:.1f})"
    settings = {
        "NETWORK_HOSTNAME": machine.name,
        "START": " && ".join([opens, _OWN_MACHINE.format(last=last, n=machine.number), _SAME_MACHINE, *gone]),
        "TrainingSeconds": f"{machine.compute_s:.3f}",
        "WeekBegan": "$(WEEK_BEGAN)",
        "STARTD_ATTRS": "$(STARTD_ATTRS) TrainingSeconds WeekBegan",
    }
    return Site(machine.site, 1, 4096, 1, *gpu, tuple(settings.items()))


class Place:
    """The pool and its federation; `with place.week_begins(): …` for each arm."""

    def __init__(self, folder: Path, week: Week, data: bytes) -> None:
        self.week = week
        last = max(machine.opens for machine in week.machines)
        sites = [site_of(machine, last) for machine in week.machines]
        self.pool = Pool(folder / "pool", sites=sites, patience_s=_UP_S)
        with open(self.pool.config, "a") as config:
            config.write(
                _SETTINGS.format(limit_s=week.limit_s, never=_NEVER, killed=KILLED, knobs=self.pool.folder / "knobs")
            )
        known = {addresses.address(machine.number): machine.number for machine in week.machines}
        self.caches = Caches(folder / "ca", week, data, known)
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Place:
        with contextlib.ExitStack() as opening:
            opening.enter_context(self.pool)
            opening.enter_context(self.caches)
            self.pool.trust(self.caches.ca)
            shut = [machine.number for machine in self.week.machines if not machine.reaches_outside]
            opening.enter_context(addresses.addressed(self.pool.groups, self.caches.ports, OUTSIDE, shut))
            self._open = opening.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._open.close()

    @contextlib.contextmanager
    def week_begins(self) -> Iterator[float]:
        """The moment of its beginning, a little later than now; then all that befalls machines does."""
        began = round(time.time() + _NOTICE_S)
        settings = {"WEEK_BEGAN": began, "MAX_FILE_TRANSFER_PLUGIN_LIFETIME": self.week.timer_s}
        with self.pool.configured(**settings):
            self.pool.await_some(lambda: self._has_heard(began), "not all machines have heard of the week's beginning")
            self.caches.begin(began)
            over = threading.Event()
            evictor = threading.Thread(target=self._evict, args=(began, over), daemon=True)
            evictor.start()
            try:
                yield began
            finally:
                over.set()
                evictor.join()
                self._remove_all()

    def _has_heard(self, began: int) -> bool:
        heard = self.pool.run(["condor_status", "-af", "WeekBegan"]).stdout.split()
        return heard.count(str(began)) >= len(self.week.machines)

    def _evict(self, began: float, over: threading.Event) -> None:
        moments = sorted((start, machine) for machine in self.week.machines for start, _ in machine.closed)
        for moment, machine in moments:
            if over.wait(max(0.0, began + moment - time.time())):
                return
            tell(f"  {moment / self.week.hour:.1f} h: {machine.name} is taken back")
            self.pool.run(["condor_vacate", f"site{machine.number}@{machine.name}"], check=False)

    def _remove_all(self) -> None:
        for option in ((), ("-forcex",)):
            self.pool.run(["condor_rm", *option, "-constraint", "true"], check=False)
        self.pool.await_some(lambda: not self.pool.queue("true", "ClusterId"), "jobs stay in the queue")
