"""The HTCondor engine: runs attempts as jobs of an HTCondor pool.

The supervisor runs on the *access point*, where the *schedd* has the queue of jobs. Attempts that are submitted
together form a *cluster*, and each is one *item* of it; the schedd turns items into jobs (it *materializes* them) over
time. HTCondor writes what happens to them into the *event log* of the run, `RUN/htcondor/event.log`.

Start with `condor_engine`. To submit, `run_setup` checks a plan and writes the run folder, `submit_description` renders
submit files, `input_transfer` decides how inputs reach the worker, and `shell_runner` replaces the agent in images
without Python. To follow jobs, `log_reader` and `job_tracker` turn the event log into updates, `condor_queue` polls the
queue, and `output_retrieval` handles returned outputs and checkpoints. Only `condor_client` calls HTCondor.
`supervisor_job` runs the supervisor itself as a job, and `packtrain doctor` uses `access_point_checks`.
"""

from packtrain.engines.htcondor.condor_engine import CAPABILITIES, HtcondorEngine, capabilities_for

__all__ = ["CAPABILITIES", "HtcondorEngine", "capabilities_for"]
