"""From a workflow to a plan. Submit side only.

Start with `make_plan`. `survey` asks the inputs for their sizes, `explain` makes of a plan what a
table shows, `fit` compares it with what an engine has, `secrets` carries secrets from where they are
to the run's folder. Not here: reading the workflow (`spec`), and doing what the plan says (`engines`, `agent`).
"""
