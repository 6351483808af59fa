"""What is known: the state of a run, folded from its events.

`table` is the literal table of transitions, `attempt` and `job` hold what was heard, `fold` takes
events in any order, any number of times. Pure: no files, no clock. Not here: what to do about it
(`supervise.policies`).
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
