"""The local engine: runs attempts as processes on this machine.

Each attempt is an agent process with its own session, so that it outlives the supervisor and the terminal. The agent
holds a lock on the *claim* file of its attempt; another process finds it by that file. A *slot allocation* is the part
of the machine (CPUs, memory, GPUs) that an attempt uses.

Start with `local_engine`. `slot_allocator` keeps track of the free resources; `resources` detects what the machine has
and chooses the environment variables that a job gets.
"""

from packtrain.engines.local.local_engine import LocalEngine
from packtrain.engines.local.resources import capabilities

__all__ = ["LocalEngine", "capabilities"]
