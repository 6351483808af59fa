"""The pool of the week: a machine of HTCondor for each one that fate made, open when fate says so."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from harness.measure import print_progress
from harness.week.caches import OUTSIDE_ADDRESS, ReplayFederation
from harness.week.fault_schedule import ReplayNode, ReplayWeek
from testbed import addresses
from testbed.condor_config import PoolSite
from testbed.condor_pool import CondorPool

_STARTUP_TIMEOUT_S = 240.0
_START_DELAY_S = (
    20.0  # between the decision that a week begins and its beginning: a hundred machines have to hear of it
)
_FAR_FUTURE = 4_000_000_000
# HTCondor's timer for transfers started jobs again in the published week; today it holds them, so the pool lets them go
# at once. They were started again where they had been: a job with 28 stalls never left its site.
TRANSFER_TIMEOUT_HOLD = "HoldReasonCode == 13 && HoldReasonSubCode == 62"
# While machines come up, each one is for one job of a submission: none takes the place of a job that is started again.
_OWN_NODE_EXPRESSION = (
    "(time() > $(WEEK_BEGAN) + {last:.1f} || (TARGET.TotalSubmitProcs > 1) =!= true || TARGET.ProcId == {n})"
)
_SAME_NODE_EXPRESSION = "(TARGET.LastHoldReasonSubCode =!= 62 || TARGET.LastRemoteHost =?= MY.Name)"
# A hundred machines on one host: what is asked each second elsewhere is asked more seldom.
_POOL_CONFIG = """
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
_GPU_BY_SITE = {"CHTC": ("NVIDIA A100-SXM4-40GB", 40536, 8.0), "PDX": ("Tesla V100-PCIE-16GB", 16160, 7.0)}
_DEFAULT_GPU = "NVIDIA GeForce RTX 2080 Ti", 11019, 7.5


def make_pool_site(node: ReplayNode, last_opens_at: float) -> PoolSite:
    """`last`: when the last machine comes up."""
    gpu = _GPU_BY_SITE.get(node.site.split("-")[0], _DEFAULT_GPU)
    gone = [f"(time() < $(WEEK_BEGAN) + {a:.1f} || time() >= $(WEEK_BEGAN) + {b:.1f})" for a, b in node.evicted_periods]
    opens = f"(time() >= $(WEEK_BEGAN) + {node.opens_at:.1f})"
    settings = {
        "NETWORK_HOSTNAME": node.name,
        "START": " && ".join(
            [opens, _OWN_NODE_EXPRESSION.format(last=last_opens_at, n=node.number), _SAME_NODE_EXPRESSION, *gone]
        ),
        "TrainingSeconds": f"{node.compute_s:.3f}",
        "WeekBegan": "$(WEEK_BEGAN)",
        "STARTD_ATTRS": "$(STARTD_ATTRS) TrainingSeconds WeekBegan",
    }
    return PoolSite(node.site, 1, 4096, 1, *gpu, tuple(settings.items()))


class ReplayPool:
    """The pool and its federation; `with place.week_begins(): …` for each arm."""

    def __init__(self, folder: Path, week: ReplayWeek, data: bytes) -> None:
        self.week = week
        last = max(machine.opens_at for machine in week.nodes)
        sites = [make_pool_site(machine, last) for machine in week.nodes]
        self.pool = CondorPool(folder / "pool", sites=sites, timeout_s=_STARTUP_TIMEOUT_S)
        with open(self.pool.config_path, "a") as config:
            config.write(
                _POOL_CONFIG.format(
                    limit_s=week.execute_limit_s,
                    never=_FAR_FUTURE,
                    killed=TRANSFER_TIMEOUT_HOLD,
                    knobs=self.pool.folder / "knobs",
                )
            )
        known = {addresses.site_address(machine.number): machine.number for machine in week.nodes}
        self.federation = ReplayFederation(folder / "ca", week, data, known)
        self._exit_stack = contextlib.ExitStack()

    def __enter__(self) -> ReplayPool:
        with contextlib.ExitStack() as opening:
            opening.enter_context(self.pool)
            opening.enter_context(self.federation)
            self.pool.trust_ca(self.federation.ca_file)
            shut = [machine.number for machine in self.week.nodes if not machine.has_outbound_network]
            opening.enter_context(
                addresses.assign_site_addresses(self.pool.site_cgroups, self.federation.ports, OUTSIDE_ADDRESS, shut)
            )
            self._exit_stack = opening.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._exit_stack.close()

    @contextlib.contextmanager
    def start_week(self) -> Iterator[float]:
        """The moment of its beginning, a little later than now; then all that befalls machines does."""
        began = round(time.time() + _START_DELAY_S)
        settings = {"WEEK_BEGAN": began, "MAX_FILE_TRANSFER_PLUGIN_LIFETIME": self.week.transfer_timeout_s}
        with self.pool.override_config(**settings):
            self.pool.wait_for(
                lambda: self._is_start_propagated(began), "not all machines have heard of the week's beginning"
            )
            self.federation.start_week(began)
            over = threading.Event()
            evictor = threading.Thread(target=self._run_evictions, args=(began, over), daemon=True)
            evictor.start()
            try:
                yield began
            finally:
                over.set()
                evictor.join()
                self._remove_all()

    def _is_start_propagated(self, started_at: int) -> bool:
        heard = self.pool.run_as_user(["condor_status", "-af", "WeekBegan"]).stdout.split()
        return heard.count(str(started_at)) >= len(self.week.nodes)

    def _run_evictions(self, started_at: float, stop_event: threading.Event) -> None:
        moments = sorted((start, machine) for machine in self.week.nodes for start, _ in machine.evicted_periods)
        for moment, machine in moments:
            if stop_event.wait(max(0.0, started_at + moment - time.time())):
                return
            print_progress(f"  {moment / self.week.hour_s:.1f} h: {machine.name} is taken back")
            self.pool.run_as_user(["condor_vacate", f"site{machine.number}@{machine.name}"], check=False)

    def _remove_all(self) -> None:
        for option in ((), ("-forcex",)):
            self.pool.run_as_user(["condor_rm", *option, "-constraint", "true"], check=False)
        self.pool.wait_for(lambda: not self.pool.queue("true", "ClusterId"), "jobs stay in the queue")
