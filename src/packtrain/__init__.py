"""packtrain: run PyTorch trainings on HTCondor pools and laptops, and survive preemption, bad nodes and slow data.

A *run* is one workflow file, submitted once; it consists of *jobs*. The *supervisor* submits *attempts* of each job
through an *engine* (this machine or an HTCondor pool). On the worker, the *agent* downloads inputs, runs the steps,
uploads checkpoints and outputs, and reports events. Start reading at `services.py` (how the parts are connected) or
docs/ARCHITECTURE.md (why they are built this way).
"""

__version__ = "0.1.0"
