"""The `packtrain` command line.

`main` finds a command by name and imports only its module. `commands` holds one module per command, in one package
per section of the help (start, watch, results, data, tools). `ui` holds what several commands share: options, output
as text or JSON, progress displays. A command never imports another command; import-linter enforces this.
"""
