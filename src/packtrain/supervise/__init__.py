"""The supervisor of a run: it collects events, decides, stores the decisions, and acts on them.

The *supervisor* is the process that keeps a run going. A *lease* in the store makes sure that a run has only one. The
*collector* stores the events of agents and of the engine. A *policy* is a pure function of the state and the time; it
returns *decisions*, which are stored before they are carried out.

Start reading at `supervisor`, the loop. `recovery` is what happens before it, `policy_schedule` chooses the policies to
ask, and `executor` carries out what they decide. `leased_run` has the events and the state of the run. `decisions`
lists what policies can decide, and `policies` holds the policies. How attempts are run is up to the engine
(`packtrain.engines`).
"""

from packtrain.supervise.collector import Collector
from packtrain.supervise.supervisor import Supervisor

__all__ = ["Collector", "Supervisor"]
