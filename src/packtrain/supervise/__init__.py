"""Keeping a run going: collect what happened, decide, write, act, confirm.

`loop` is the supervisor, `collect` brings events home, `decisions` are what policies return,
`policies` decide (pure functions of state and time). Not here: how attempts run (`engines`).
"""

from packtrain.supervise.collector import Collector
from packtrain.supervise.supervisor import Supervisor

__all__ = ["Collector", "Supervisor"]
