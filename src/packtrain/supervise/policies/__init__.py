"""Pure functions from state and time to decisions. Each looks only at the jobs that changed or are due, except
`halt`, `stragglers` and `patience`.

`rules` is what they go by; `verdict`, `halt`, `hold`, `start`, `amend`, `stragglers`, `patience` and `cancel` decide;
`places` says what is avoided, `forecast` when attempts will end. No policy reads a clock, a file or a random source: a
simulator runs them unchanged."""

from packtrain.supervise.policies.cancel import cancel_all, cancel_requested
from packtrain.supervise.policies.config import PolicyConfig
from packtrain.supervise.policies.holds import hold_policy
from packtrain.supervise.policies.job_result import job_result_policy
from packtrain.supervise.policies.overrides import relax_overrides_policy
from packtrain.supervise.policies.queue_timeout import queue_timeout_policy
from packtrain.supervise.policies.stop_run import stop_run_policy
from packtrain.supervise.policies.stragglers import accept_first_success, straggler_policy
from packtrain.supervise.policies.submit import submit_policy

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
