"""What is known: the state of a run, folded from its events.

`table` is the literal table of transitions, `attempt` and `job` hold what was heard, `fold` takes
events in any order, any number of times. Pure: no files, no clock. Not here: what to do about it
(`supervise.policies`).
"""

from packtrain.state.execution import Attempt, Stage
from packtrain.state.job import JobState, Verdict
from packtrain.state.outcomes import Finding, Record
from packtrain.state.run import RunState, fold
from packtrain.state.transitions import ATTEMPT_TRANSITIONS, LIVE, AttemptStatus, JobStatus

__all__ = [
    "ATTEMPT_TRANSITIONS",
    "LIVE",
    "Attempt",
    "AttemptStatus",
    "Finding",
    "JobState",
    "JobStatus",
    "Record",
    "RunState",
    "Stage",
    "Verdict",
    "fold",
]
