"""Interprets a job's steps: what runs, in which order, with which variables, and what follows from a failure.

A *step* has one *action*: run a command, or contain other steps (group, `for`, `launch`, `use`). A *level* is the list
of steps at one depth; launched steps end with their level. A *scope* is the position of a step: its path such as
`sweep/2/train`, the variables added on the way there, and the process tree it belongs to.

Start reading with `runner` (levels, `dependsOn`, `if`, `catch`, `finally`), then `command` (one `run`). `variables`
puts together a step's environment; `packtrain.agent.environments` wraps its command for the host or a container.
"""
