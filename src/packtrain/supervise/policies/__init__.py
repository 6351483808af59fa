"""Pure functions from state and time to decisions. Each looks only at the jobs that changed or are due, except
`halt`, `stragglers` and `patience`.

`rules` is what they go by; `verdict`, `halt`, `hold`, `start`, `amend`, `stragglers`, `patience` and `cancel` decide;
`places` says what is avoided, `forecast` when attempts will end. No policy reads a clock, a file or a random source: a
simulator runs them unchanged."""

from packtrain.supervise.policies.cancel import cancel_everything, cancel_requested
from packtrain.supervise.policies.config import Rules
from packtrain.supervise.policies.holds import holds
from packtrain.supervise.policies.job_result import verdict
from packtrain.supervise.policies.overrides import loosen
from packtrain.supervise.policies.queue_timeout import patience
from packtrain.supervise.policies.stop_run import halt
from packtrain.supervise.policies.stragglers import settle, stragglers
from packtrain.supervise.policies.submit import start

__all__ = [
    "Rules",
    "cancel_everything",
    "cancel_requested",
    "halt",
    "holds",
    "loosen",
    "patience",
    "settle",
    "start",
    "stragglers",
    "verdict",
]
