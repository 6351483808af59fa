"""A small real conda channel, and Pixi workspaces that are locked against it.

`packages` builds conda packages and wheels, `channel` has one package for each rule of installing them, `workspace`
solves the environments with py-rattler and writes `pixi.toml` and `pixi.lock` in versions 6 and 7. Serve the folder of
`build_channel` with `testbed.http_server`, or with `python -m testbed.pixi FOLDER [WHEEL…]`.
"""
