"""Pure functions from state and time to decisions. Each looks only at the jobs that changed or are due."""

from packtrain.supervise.policies.cancel import cancel_everything, cancel_requested
from packtrain.supervise.policies.hold import holds
from packtrain.supervise.policies.start import start
from packtrain.supervise.policies.verdict import verdict

__all__ = ["cancel_everything", "cancel_requested", "holds", "start", "verdict"]
