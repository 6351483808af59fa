"""Readers that turn a source of job data into a `JobHistory`.

There are four sources: the event store of a packtrain run (`run_store`), HTCondor user logs (`condor_log`), Slurm's
accounting (`slurm_accounting`) and CSV job tables (`job_table`). `files` detects which of the last three a file is.
`training_curves` reads the metrics of a run.

A *slot session* is the time from claiming a slot to releasing it; `packtrain.state.slot_time` folds a pool's events to
sessions and waits. An *agent timeline* is what packtrain's agent recorded inside a session, on the clock of the worker.
An *end status* is an outcome with its failure category and reason.

Start with `files.read_history` and `run_store.read_run_history`.
"""
