"""The state of a run, folded from its events.

A run has jobs. packtrain submits *attempts* of a job (`JOB-1`, `JOB-2`, …). The pool starts an attempt once or several
times; each start is an *execution*. The *agent* is the program that runs during an execution and reports events.

The state is a pure function of the set of events: their order and duplicates do not matter. Nothing here reads files or
clocks, and nothing here decides what to do (see `packtrain.supervise.policies`).

Start reading at `transitions`, which explains the life of an execution before it lists the table. `execution` builds
one execution from its events, and `slot_time` folds what a pool did to waits and slot sessions. `job_log` collects the
events of a job, `job` is the immutable state that follows from them, and `run` has the jobs of a run. `outcomes` and
`timing` index what happened where and how long it took; `site_history` does so across runs.
"""

from packtrain.state.execution import Execution, Stage
from packtrain.state.job import JobResult, JobState
from packtrain.state.outcomes import ExecutionOutcome, OutcomeIndex
from packtrain.state.run import RunState, fold
from packtrain.state.transitions import EXECUTION_TRANSITIONS, LIVE_STATUSES, ExecutionStatus, JobStatus

__all__ = [
    "EXECUTION_TRANSITIONS",
    "LIVE_STATUSES",
    "Execution",
    "ExecutionOutcome",
    "ExecutionStatus",
    "JobResult",
    "JobState",
    "JobStatus",
    "OutcomeIndex",
    "RunState",
    "Stage",
    "fold",
]
