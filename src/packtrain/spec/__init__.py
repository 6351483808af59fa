"""The workflow file: YAML with line numbers, models, rules, problems. Submit side only.

Start with `load`: it gives a Workflow, or all problems of the file at once, each with its place.
`workflow`, `steps` and `data` have the models (docs/reference/workflow.md explains them to users),
`rules` and `unsupported` what concerns more than one key, `matrix` the jobs, `units` the quantities.
Not here: what will be done with it (`planner`), and anything that looks at the world beyond the file.
"""
