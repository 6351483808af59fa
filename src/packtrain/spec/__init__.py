"""The workflow file: YAML with line numbers, models, checks and diagnostics. Submit side only.

A *workflow* is the file that a user writes. A *model* (in `models`) describes the keys of one mapping; its field
docstrings are the reference. A *diagnostic* is one error or warning with its position. A *matrix point* is one job.

Start with `load`: it returns a Workflow, or all diagnostics of the file at once. `cross_checks` and `unsupported_keys`
check rules that involve more than one key. The package `planner` makes a plan from a Workflow; nothing here looks
beyond the file.
"""
