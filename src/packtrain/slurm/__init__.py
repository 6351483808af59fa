"""Slurm's codes and output formats: everything specific to Slurm that is not the engine.

A *job state* is a name such as PENDING or NODE_FAIL; a *pending reason* says why a job does not start. An *array task*
is one element of a job array and is named `ARRAY_INDEX`.

Start with `job_states`, the table of states and reasons, `squeue`, which parses the queue, or `accounting`, which
parses sacct for reports. The engine is in
`packtrain.engines.slurm`.
"""
