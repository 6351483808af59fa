"""The language of submit files: text to commands with their values.

A *command* is a line `key = value`, a *macro* is `$(NAME)`, and the `queue` statement says how many jobs there are.
Start with `submit_reader`. `logical_lines` joins continued lines, `macros` and `conditionals` evaluate them,
`queue_statement` reads the items, and `quoting` splits arguments and lists. `context` is what a submit file may read
from outside: files and environment variables.
"""
