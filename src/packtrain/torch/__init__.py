"""Small helpers for training programs: `from packtrain.torch import report`. Rides to the worker.

Standard library only: importing it needs neither torch nor the rest of packtrain, and a program that
uses it runs the same without packtrain around it.
"""

from packtrain.torch.report import report

__all__ = ["report"]
