"""Slurm's accounting as `sacct` prints it: `sacct -P` with any columns, and `sacct --json` of all versions since 22.05.

A *record* is one execution of a job. A job that was requeued has several (`sacct -D`). Slurm records CPU time and
memory by *step*; they are summed up in the record of the job.

Start with `record`, or `parse`, which detects the format.
"""
