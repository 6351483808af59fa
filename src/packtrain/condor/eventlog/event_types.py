"""The type numbers of HTCondor's job events, as in the first column of the log.

Documented at https://htcondor.readthedocs.io, "Job Event Log Codes". Types that packtrain does not use are left out.
"""

from __future__ import annotations

SUBMIT = 0
EXECUTE = 1
EXECUTABLE_ERROR = 2
CHECKPOINTED = 3
EVICTED = 4
TERMINATED = 5
IMAGE_SIZE = 6
SHADOW_EXCEPTION = 7
GENERIC = 8  # a message that the job itself wrote
ABORTED = 9  # removed from the queue
SUSPENDED = 10
UNSUSPENDED = 11
HELD = 12
RELEASED = 13
REMOTE_ERROR = 21
DISCONNECTED = 22
RECONNECTED = 23
RECONNECT_FAILED = 24  # the job lease expired
JOB_AD = 28
CLUSTER_SUBMIT = 35
CLUSTER_REMOVE = 36
FACTORY_PAUSED = 37  # the schedd makes no more jobs of the cluster's items
FACTORY_RESUMED = 38
FILE_TRANSFER = 40
DATAFLOW_SKIPPED = 46
