"""What a training program needs to survive: `from packtrain.torch import Checkpoint, Order, report`. Rides along.

`Checkpoint` saves and resumes, `Order` says which samples come when, `report` tells how it goes. Standard library
only: importing it needs neither torch nor the rest of packtrain, and a program that uses it runs the same without
packtrain around it. Start with checkpoint.py; docs/how-to/training.md shows how to use it. Not here: where checkpoints
go from the machine (the agent's business).
"""

from packtrain.torch.checkpoint import Checkpoint
from packtrain.torch.metrics import log_metrics
from packtrain.torch.sampler import ResumableBatchSampler
from packtrain.torch.training_state import CheckpointError, TrainingState

__all__ = ["Checkpoint", "CheckpointError", "ResumableBatchSampler", "TrainingState", "log_metrics"]
