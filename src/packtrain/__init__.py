"""packtrain: carry a dataset and a training program to any machine, keep it alive, bring it home.

Start at `app.py` (how the parts are put together) or docs/ARCHITECTURE.md (why they are so).
"""

__version__ = "0.1.0"
