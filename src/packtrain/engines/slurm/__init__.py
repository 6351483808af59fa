"""The Slurm engine: runs attempts as tasks of job arrays, with the run's folder on a shared file system.

A *submission* is one job array; its job name is unique and identifies it, because Slurm may reuse job numbers after a
crash of its controller. The *status log* is the engine's own record of what squeue reported; the tracker folds it to
updates.

Start with `slurm_engine`. `run_setup` makes the `run_settings` of a new run; `sbatch_options` and `batch_script` render
arrays from them, and `submissions` stores these. `slurm_client` calls Slurm's commands. `task_monitor` follows the
tasks with `status_log` and `task_tracker`. Slurm's own codes and formats are in `packtrain.slurm`.
"""

from packtrain.engines.slurm.slurm_engine import CAPABILITIES, SlurmEngine, capabilities_for

__all__ = ["CAPABILITIES", "SlurmEngine", "capabilities_for"]
