"""The policies: pure functions from the state of a run and the time to decisions.

A policy reads no clock, no file and no random source, so the simulator runs the same policies. Most policies check only
the jobs that changed; `stop_run`, `stragglers` and `queue_timeout` check all jobs.

`submit` makes the first attempt and retries, `overrides` changes resources and sites of a retry, `job_result` ends a
job, `stop_run` stops a run early, `holds` responds to held attempts, `queue_timeout` to attempts that no node takes,
`stragglers` to slow executions, and `cancel` to requests of users. `site_avoidance` finds sites and nodes to avoid and
`forecast` estimates when executions end. `config` is what all policies have in common.
"""

from packtrain.supervise.policies.cancel import cancel_all, cancel_requested
from packtrain.supervise.policies.config import PolicyConfig
from packtrain.supervise.policies.holds import hold_policy
from packtrain.supervise.policies.job_result import job_result_policy
from packtrain.supervise.policies.overrides import relax_overrides_policy
from packtrain.supervise.policies.queue_timeout import queue_timeout_policy
from packtrain.supervise.policies.stop_run import stop_run_policy
from packtrain.supervise.policies.stragglers import accept_first_success, straggler_policy
from packtrain.supervise.policies.submit_and_retry import submit_policy

__all__ = [
    "PolicyConfig",
    "accept_first_success",
    "cancel_all",
    "cancel_requested",
    "hold_policy",
    "job_result_policy",
    "queue_timeout_policy",
    "relax_overrides_policy",
    "stop_run_policy",
    "straggler_policy",
    "submit_policy",
]
