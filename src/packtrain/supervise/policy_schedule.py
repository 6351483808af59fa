"""Which policies are due, in the order in which they are asked."""

from __future__ import annotations

import math
from collections.abc import Sequence

from packtrain.engines.api import Capabilities
from packtrain.plan import Plan
from packtrain.state import RunState
from packtrain.supervise.decisions import Policy
from packtrain.supervise.policies import (
    PolicyConfig,
    accept_first_success,
    cancel_all,
    cancel_requested,
    hold_policy,
    job_result_policy,
    queue_timeout_policy,
    relax_overrides_policy,
    stop_run_policy,
    straggler_policy,
    submit_policy,
)
from packtrain.supervise.policies.stragglers import check_interval_s


class PolicySchedule:
    """The policies of one run.

    Args:
        plan: The plan of the run.
        capabilities: The properties of the engine.
        started_at: When the supervisor started (Unix time).
    """

    def __init__(self, plan: Plan, capabilities: Capabilities, started_at: float) -> None:
        config = PolicyConfig.from_plan(plan, capabilities)
        self._result_policies: Sequence[Policy] = (cancel_requested, accept_first_success, job_result_policy(config))
        self._failure_policies = (stop_run_policy(config), hold_policy(config), relax_overrides_policy(config))
        self._periodic_policies = (queue_timeout_policy(config), straggler_policy(config))
        self._submit_policy = submit_policy(config)
        self._min_interval_s, self._max_checks = check_interval_s(config), capabilities.max_straggler_checks
        self._started_at, self._next_periodic_at = started_at, 0.0

    def due(self, state: RunState, now: float, only_requests: bool = False, is_stopping: bool = False) -> list[Policy]:
        """Return the policies to ask now.

        Args:
            state: The state of the run.
            now: The Unix time.
            only_requests: Only handle the requests of users, and submit nothing.
            is_stopping: End all attempts instead of submitting more.
        """
        policies = [*self._result_policies]
        if not only_requests:
            policies += self._failure_policies
            policies += (cancel_all,) if is_stopping else (*self._due_periodic(state, now), self._submit_policy)
        return policies

    def _due_periodic(self, state: RunState, now: float) -> Sequence[Policy]:
        """Return the policies that check all running jobs. The longer trainings take, the less often they are due."""
        if now < self._next_periodic_at:
            return ()
        median_s = state.stats_stale_ok.timing.median_runtime_s() or math.inf
        runtime_s = min(median_s, now - self._started_at)  # a lower bound if no training has ended yet
        self._next_periodic_at = now + max(self._min_interval_s, runtime_s / self._max_checks)
        return self._periodic_policies
