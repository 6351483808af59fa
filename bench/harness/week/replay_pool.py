"""The pool of the replay: one execution point per node of the fault schedule, available when the schedule says so."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from harness.measure import print_progress
from harness.week.fault_schedule import ReplayNode, ReplayWeek
from harness.week.replay_federation import OUTSIDE_ADDRESS, ReplayFederation
from testbed import site_addresses
from testbed.condor_config import PoolSite, dynamic_config_path
from testbed.condor_pool import CondorPool

_STARTUP_TIMEOUT_S = 240.0
_START_DELAY_S = 20.0  # time for a hundred nodes to receive the start time
_FAR_FUTURE = 4_000_000_000
# In the published week, HTCondor's transfer timeout restarted jobs; today it holds them, so the pool releases them at
# once. They were restarted on the same node: a job with 28 stalls remained at its site.
TRANSFER_TIMEOUT_HOLD = "HoldReasonCode == 13 && HoldReasonSubCode == 62"
# While nodes come up, each one is reserved for one job of a submission, so that restarted jobs do not take it.
_OWN_NODE_EXPRESSION = (
    "(time() > $(REPLAY_STARTED_AT) + {last:.1f} || (TARGET.TotalSubmitProcs > 1) =!= true || TARGET.ProcId == {n})"
)
_SAME_NODE_EXPRESSION = "(TARGET.LastHoldReasonSubCode =!= 62 || TARGET.LastRemoteHost =?= MY.Name)"
# With a hundred nodes on one host, intervals are longer than in other pools of the testbed.
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
REPLAY_STARTED_AT = {never}
include ifexist : {overrides}
"""
_GPU_BY_SITE = {"CHTC": ("NVIDIA A100-SXM4-40GB", 40536, 8.0), "PDX": ("Tesla V100-PCIE-16GB", 16160, 7.0)}
_DEFAULT_GPU = "NVIDIA GeForce RTX 2080 Ti", 11019, 7.5


def make_pool_site(node: ReplayNode, last_opens_at: float) -> PoolSite:
    """Return the execution point of a node. `last_opens_at`: when the last node comes up."""
    gpu = _GPU_BY_SITE.get(node.site.split("-")[0], _DEFAULT_GPU)
    evictions = [
        f"(time() < $(REPLAY_STARTED_AT) + {a:.1f} || time() >= $(REPLAY_STARTED_AT) + {b:.1f})"
        for a, b in node.evicted_periods
    ]
    opens = f"(time() >= $(REPLAY_STARTED_AT) + {node.opens_at:.1f})"
    settings = {
        "NETWORK_HOSTNAME": node.name,
        "START": " && ".join(
            [opens, _OWN_NODE_EXPRESSION.format(last=last_opens_at, n=node.number), _SAME_NODE_EXPRESSION, *evictions]
        ),
        "TrainingSeconds": f"{node.compute_s:.3f}",
        "ReplayStartedAt": "$(REPLAY_STARTED_AT)",
        "STARTD_ATTRS": "$(STARTD_ATTRS) TrainingSeconds ReplayStartedAt",
    }
    return PoolSite(node.site, 1, 4096, 1, *gpu, tuple(settings.items()))


class ReplayPool:
    """The pool and its federation. Each arm runs in `with replay_pool.start_week(): …`."""

    def __init__(self, folder: Path, week: ReplayWeek, data: bytes) -> None:
        self.week = week
        last_opens_at = max(node.opens_at for node in week.nodes)
        sites = [make_pool_site(node, last_opens_at) for node in week.nodes]
        self.pool = CondorPool(folder / "pool", sites=sites, timeout_s=_STARTUP_TIMEOUT_S)
        with open(self.pool.config_path, "a") as config:
            config.write(
                _POOL_CONFIG.format(
                    limit_s=week.execute_limit_s,
                    never=_FAR_FUTURE,
                    killed=TRANSFER_TIMEOUT_HOLD,
                    overrides=dynamic_config_path(self.pool.folder),
                )
            )
        node_by_address = {site_addresses.site_address(node.number): node.number for node in week.nodes}
        self.federation = ReplayFederation(folder / "ca", week, data, node_by_address)
        self._exit_stack = contextlib.ExitStack()

    def __enter__(self) -> ReplayPool:
        with contextlib.ExitStack() as opening:
            opening.enter_context(self.pool)
            opening.enter_context(self.federation)
            self.pool.trust_ca(self.federation.ca_file)
            blocked = [node.number for node in self.week.nodes if not node.has_outbound_network]
            opening.enter_context(
                site_addresses.assign_site_addresses(
                    self.pool.site_cgroups, self.federation.ports, OUTSIDE_ADDRESS, blocked
                )
            )
            self._exit_stack = opening.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._exit_stack.close()

    @contextlib.contextmanager
    def start_week(self) -> Iterator[float]:
        """Start a week and yield its start time, shortly after now; faults follow the schedule until the end."""
        started_at = round(time.time() + _START_DELAY_S)
        settings = {"REPLAY_STARTED_AT": started_at, "MAX_FILE_TRANSFER_PLUGIN_LIFETIME": self.week.transfer_timeout_s}
        with self.pool.override_config(**settings):
            self.pool.wait_for(
                lambda: self._is_start_propagated(started_at), "not all nodes have received the start time"
            )
            self.federation.start_week(started_at)
            finished = threading.Event()
            evictor = threading.Thread(target=self._run_evictions, args=(started_at, finished), daemon=True)
            evictor.start()
            try:
                yield started_at
            finally:
                finished.set()
                evictor.join()
                self._remove_all()

    def _is_start_propagated(self, started_at: int) -> bool:
        start_times = self.pool.run_as_user(["condor_status", "-af", "ReplayStartedAt"]).stdout.split()
        return start_times.count(str(started_at)) >= len(self.week.nodes)

    def _run_evictions(self, started_at: float, stop_event: threading.Event) -> None:
        evictions = sorted((start, node) for node in self.week.nodes for start, _ in node.evicted_periods)
        for offset_s, node in evictions:
            if stop_event.wait(max(0.0, started_at + offset_s - time.time())):
                return
            print_progress(f"  {offset_s / self.week.hour_s:.1f} h: evicting {node.name}")
            self.pool.run_as_user(["condor_vacate", f"site{node.number}@{node.name}"], check=False)

    def _remove_all(self) -> None:
        for option in ((), ("-forcex",)):
            self.pool.run_as_user(["condor_rm", *option, "-constraint", "true"], check=False)
        self.pool.wait_for(lambda: not self.pool.queue("true", "ClusterId"), "jobs remain in the queue")
