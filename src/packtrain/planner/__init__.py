"""From a workflow to a plan. Submit side only.

Start with `make_plan`. `survey` asks the inputs for their sizes, `explain` makes of a plan what a
table shows, `fit` compares it with what an engine has, `secrets` carries secrets from where they are
to the run's folder. Not here: reading the workflow (`spec`), and doing what the plan says (`engines`, `agent`).
"""

from packtrain.planner.build import Planned, make_plan
from packtrain.planner.secrets import Resolved, SecretValue, resolve_secrets, write_secrets

__all__ = ["Planned", "Resolved", "SecretValue", "make_plan", "resolve_secrets", "write_secrets"]
