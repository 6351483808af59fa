"""Follows the jobs of a run in the pool.

Start with `job_monitor`, which merges two sources: the event log of the run, read by `log_reader`, and the queue of the
schedd, polled by `condor_queue` for what the log does not contain. `job_tracker` knows which job of the pool belongs to
which attempt, and `tracked_job` what each event means for one of them.
"""

from packtrain.engines.htcondor.tracking.condor_queue import CondorQueue
from packtrain.engines.htcondor.tracking.job_monitor import JobMonitor
from packtrain.engines.htcondor.tracking.job_tracker import JobTracker
from packtrain.engines.htcondor.tracking.tracked_job import LOG_PREFIX, REMOVE_REASON, TrackedJob

__all__ = ["LOG_PREFIX", "REMOVE_REASON", "CondorQueue", "JobMonitor", "JobTracker", "TrackedJob"]
