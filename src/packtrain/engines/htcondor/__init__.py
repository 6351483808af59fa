"""The HTCondor engine: runs attempts as jobs of an HTCondor pool.

The supervisor runs on the *access point*, where the *schedd* has the queue of jobs. Attempts that are submitted
together form a *cluster*, and each is one *item* of it; the schedd turns items into jobs (it *materializes* them) over
time. HTCondor writes what happens to them into the *event log* of the run, `RUN/htcondor/event.log`.

Start with `condor_engine`. Before the first attempt, `run_setup` checks a plan and writes the run folder. To submit,
`submit_queue` uses `submit_description`, which renders submit files, `submit_lines`, which merges the user's own lines
into them, `input_transfer`, which decides how inputs reach the worker, and `shell_runner`, which replaces the agent in
images without Python. `tracking` follows jobs, `job_actions` removes and releases them, and `output_retrieval` handles
returned outputs and checkpoints. Only `condor_client` calls HTCondor.
`supervisor_job` runs the supervisor itself as a job, and `packtrain doctor` uses `access_point_checks`.
"""

from packtrain.engines.htcondor.condor_engine import CAPABILITIES, HtcondorEngine, capabilities_for

__all__ = ["CAPABILITIES", "HtcondorEngine", "capabilities_for"]
