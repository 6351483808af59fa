"""The commands: one module each, with a click command named `command`. The packages are the sections of the help."""
