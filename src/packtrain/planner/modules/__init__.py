"""DeepSquare modules: steps that a workflow uses from a git repository.

Start with `module_resolver`, which fetches a module and reads its `module.yaml`. `module_template` renders the Go
templates in it with the values of the job and the step; `go_template` is the template language.
"""
