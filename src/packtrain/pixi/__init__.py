"""Pixi environments on a machine: the locked packages are installed into a prefix, which steps then activate.

The *prefix* is the folder of an installed environment (`bin`, `lib`, …). conda packages contain the prefix of the
machine that built them, their *placeholder*, which `prefix_replacement` replaces while a file is written. The rules are
those of rattler, Pixi's own library, and of uv for wheels, so that the same lock file gives the same tree.

Start with `installer` (the packages of one environment into one prefix), then `prefix_store` (an environment is
complete or absent, and jobs share it) and `activation` (the variables that `pixi shell-hook` would set).
`conda_package` and `wheel` read one package each, through the safe extractor of `transfer.archive`. `machine` compares
a machine with what the packages need. The agent uses this package in its stage `install` and in `environments.pixi`.
"""
