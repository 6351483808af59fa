"""Attempts on this machine: `engine` starts, follows and ends them, `slots` counts what is free,
`machine` knows what there is, `claim` tells whether an agent lives."""

from packtrain.engines.local.local_engine import LocalEngine
from packtrain.engines.local.resources import capabilities

__all__ = ["LocalEngine", "capabilities"]
