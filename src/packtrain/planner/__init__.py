"""Make a plan from a workflow. Submit side only.

*Preflight* checks sizes and access of all inputs. A *secret source* says where a secret comes from; its value never
enters the plan. A *plan summary* is what `packtrain plan` shows.

Start with `make_plan`. `preflight` contacts the servers, `engine_limits` compares the plan with an engine,
`plan_summary` describes it. The package `spec` reads the workflow file; `engines` and `agent` carry out the plan.
"""
