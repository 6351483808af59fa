"""The meaning of Slurm's job states and pending reasons: the failure kind, a message for the user, what may help.

The states are documented at https://slurm.schedmd.com/job_state_codes.html, the reasons at
https://slurm.schedmd.com/job_reason_codes.html. Unknown states count as running and unknown reasons are shown as they
are, because newer versions add some.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

RELEASE, WAIT, GIVE_UP = "release", "wait", "give_up"  # see `engines.updates.Held`


class JobPhase(Enum):
    """What a job state means for an attempt."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETING = "completing"  # the program has ended; the job ends or is requeued next
    ENDED = "ended"


@dataclass(frozen=True)
class StateMeaning:
    """The meaning of a job state.

    Attributes:
        phase: Whether the job waits, runs or has ended.
        failure_kind: Of an ended job, a key of `events.FAILURE_KINDS`; "" if the exit code decides.
        message: For the user.
    """

    phase: JobPhase
    failure_kind: str = ""
    message: str = ""


@dataclass(frozen=True)
class ReasonMeaning:
    """The meaning of a pending reason.

    Attributes:
        message: Why the job does not start, for the user.
        hold_action: RELEASE, WAIT or GIVE_UP if the job is held or can never start; "" if it only has to wait.
        failure_kind: Of a held job, a key of `events.FAILURE_KINDS`.
    """

    message: str
    hold_action: str = ""
    failure_kind: str = "held"


_P, _R, _E = JobPhase.PENDING, JobPhase.RUNNING, JobPhase.ENDED
JOB_STATES: dict[str, StateMeaning] = {
    "PENDING": StateMeaning(_P),
    "REQUEUED": StateMeaning(_P),
    "REQUEUE_FED": StateMeaning(_P),
    "REQUEUE_HOLD": StateMeaning(_P),
    "RESV_DEL_HOLD": StateMeaning(_P),
    "SPECIAL_EXIT": StateMeaning(_P),
    "EXPEDITING": StateMeaning(_P),
    "CONFIGURING": StateMeaning(_P),  # nodes are booting; the job's program has not started
    "POWER_UP_NODE": StateMeaning(_P),
    "RUNNING": StateMeaning(_R),
    "COMPLETING": StateMeaning(JobPhase.COMPLETING),
    "RESIZING": StateMeaning(_R),
    "SIGNALING": StateMeaning(_R),
    "STAGE_OUT": StateMeaning(_R),
    "STOPPED": StateMeaning(_R),
    "SUSPENDED": StateMeaning(_R),
    "COMPLETED": StateMeaning(_E, "", "the job ended"),
    "FAILED": StateMeaning(_E, "", "the job failed"),
    "CANCELLED": StateMeaning(_E, "terminated", "the job was cancelled in Slurm"),
    "TIMEOUT": StateMeaning(_E, "pool_time_limit", "Slurm ended the job at its time limit"),
    "DEADLINE": StateMeaning(_E, "pool_time_limit", "Slurm ended the job at its deadline"),
    "OUT_OF_MEMORY": StateMeaning(_E, "out_of_memory", "the job used more memory than it requested"),
    "PREEMPTED": StateMeaning(_E, "evicted", "Slurm preempted the job"),
    "NODE_FAIL": StateMeaning(_E, "evicted", "the node failed"),
    "BOOT_FAIL": StateMeaning(_E, "evicted", "the node did not boot"),
    "LAUNCH_FAILED": StateMeaning(_E, "evicted", "Slurm could not start the job on the node"),
    "RECONFIG_FAIL": StateMeaning(_E, "evicted", "the node could not be reconfigured"),
    "REVOKED": StateMeaning(_E, "evicted", "another cluster of the federation started the job"),
}
_UNKNOWN_STATE = StateMeaning(_R)

PENDING_REASONS: dict[str, ReasonMeaning] = {
    "None": ReasonMeaning("Slurm has not considered the job yet"),
    "Resources": ReasonMeaning("waits for free resources"),
    "Priority": ReasonMeaning("jobs with a higher priority wait for the same partition"),
    "BeginTime": ReasonMeaning("waits for its start time, for example after it was requeued"),
    "Dependency": ReasonMeaning("waits for another job"),
    "JobArrayTaskLimit": ReasonMeaning("the array's limit of running tasks is reached"),
    "Licenses": ReasonMeaning("waits for a license"),
    "Reservation": ReasonMeaning("waits for its reservation"),
    "ReqNodeNotAvail": ReasonMeaning("a node that the job needs is down, drained or reserved"),
    "NodeDown": ReasonMeaning("a node that the job needs is down"),
    "PartitionDown": ReasonMeaning("the partition is down"),
    "PartitionInactive": ReasonMeaning("the partition does not start jobs at the moment"),
    "FrontEndDown": ReasonMeaning("no front-end node is available"),
    "Prolog": ReasonMeaning("the site's prolog runs"),
    "Cleaning": ReasonMeaning("the previous execution is still being cleaned up"),
    "BurstBufferResources": ReasonMeaning("waits for space in the burst buffer"),
    "BurstBufferStageIn": ReasonMeaning("waits for data in the burst buffer"),
    "JobHeldUser": ReasonMeaning("a user holds the job (`scontrol hold`); `scontrol release` lets it run", WAIT),
    "JobHeldAdmin": ReasonMeaning("an administrator holds the job; ask the site's support", WAIT),
    "job requeued in held state": ReasonMeaning("the job was requeued and held (`scontrol requeuehold`)", WAIT),
    "launch failed requeued held": ReasonMeaning(
        "Slurm could not start the job on its node, and holds it", RELEASE, "evicted"
    ),
    "JobHoldMaxRequeue": ReasonMeaning("Slurm requeued the job too often, and holds it", GIVE_UP, "restart_loop"),
    "JobLaunchFailure": ReasonMeaning("Slurm could not start the job", GIVE_UP, "evicted"),
    "BadConstraints": ReasonMeaning("no node satisfies the job's constraints", GIVE_UP, "submit_rejected"),
    "AccountNotAllowed": ReasonMeaning("the account may not use this partition", GIVE_UP, "submit_rejected"),
    "QOSNotAllowed": ReasonMeaning("the QOS may not be used here", GIVE_UP, "submit_rejected"),
    "InvalidAccount": ReasonMeaning("the account does not exist", GIVE_UP, "submit_rejected"),
    "InvalidQOS": ReasonMeaning("the QOS does not exist", GIVE_UP, "submit_rejected"),
    "PartitionNodeLimit": ReasonMeaning(
        "the job needs more nodes than the partition allows", GIVE_UP, "submit_rejected"
    ),
    "PartitionTimeLimit": ReasonMeaning(
        "the job's time limit is longer than the partition allows", GIVE_UP, "submit_rejected"
    ),
    "DeadLine": ReasonMeaning("the job cannot end before its deadline", GIVE_UP, "pool_time_limit"),
    "DependencyNeverSatisfied": ReasonMeaning("a job that this one depends on failed", GIVE_UP, "submit_rejected"),
    "ReservationDeleted": ReasonMeaning("the reservation was deleted", WAIT),
    "ReservationInvalid": ReasonMeaning("the reservation is not valid any more", WAIT),
    "PartitionConfig": ReasonMeaning(
        "the partition has no node with what the job requests, or does not permit it", GIVE_UP, "submit_rejected"
    ),
    "MaxMemPerLimit": ReasonMeaning(
        "the job requests more memory for each CPU or node than the site allows", GIVE_UP, "submit_rejected"
    ),
    "SystemFailure": ReasonMeaning("Slurm itself failed to start the job", RELEASE, "evicted"),
    "SchedDefer": ReasonMeaning("Slurm defers the scheduling of new jobs"),
    "AccountingPolicy": ReasonMeaning("a limit of the accounting database is reached"),
    "QOSUsageThreshold": ReasonMeaning("the QOS has used up its share"),
    "BurstBufferOperation": ReasonMeaning("waits for the burst buffer"),
    "MpiPortsBusy": ReasonMeaning("waits for free network ports for MPI"),
    "NvidiaImexChannels": ReasonMeaning("waits for a free channel of the GPUs' interconnect"),
    "FedJobLock": ReasonMeaning("another cluster of the federation considers the job"),
    # Of jobs that have ended and are requeued next:
    "OutOfMemory": ReasonMeaning("the job used more memory than it requested"),
    "TimeLimit": ReasonMeaning("the job reached its time limit"),
    "NonZeroExitCode": ReasonMeaning("the job ended with an error"),
    "RaisedSignal": ReasonMeaning("a signal ended the job"),
}
# Families of limits: the account's, the user's association's, and the QOS's. A job beyond a limit for one job never
# starts.
_LIMIT_REASONS = (
    (re.compile(r"QOSMin\w*"), "the job requests less than the minimum of its QOS", GIVE_UP),
    (
        re.compile(r"(Assoc|QOS)Max\w*Per(Job|Node)\w*"),
        "the job requests more than its account or QOS allows for one job",
        GIVE_UP,
    ),
    (re.compile(r"(Assoc|QOS)(Max|Grp)\w*Submit\w*"), "the limit of submitted jobs is reached", ""),
    (re.compile(r"(Assoc|QOS)(Max|Grp)\w*Jobs?\w*"), "the limit of running jobs is reached", ""),
    (re.compile(r"(Assoc|QOS)(Max|Grp)\w*(GRES|Gpu|GPU)\w*"), "the limit of GPUs is reached", ""),
    (re.compile(r"(Assoc|QOS)(Max|Grp)\w*(Wall|Minutes)\w*"), "the limit of run time is reached", ""),
    (
        re.compile(
            r"(Assoc|QOS|Max|Grp)\w*(Cpu|CPU|Mem|Node|Billing|Jobs|Limit|GRES|License|BB|Energy|Wall|Minutes|Unknown)\w*"
        ),
        "a limit of resources is reached",
        "",
    ),
)


def state_meaning(state: str) -> StateMeaning:
    """Return the meaning of a state. sacct adds details, as in `CANCELLED by 1000`; they are ignored."""
    return JOB_STATES.get(state.split(" ")[0].rstrip("+"), _UNKNOWN_STATE)


def reason_meaning(reason: str) -> ReasonMeaning:
    """Return the meaning of a pending reason. Details that follow a comma are added to the message."""
    if reason in PENDING_REASONS:
        return PENDING_REASONS[reason]
    name, _, details = reason.partition(",")
    suffix = f" ({details.strip()})" if details.strip() else ""
    if known := PENDING_REASONS.get(name):
        return ReasonMeaning(known.message + suffix, known.hold_action, known.failure_kind)
    for pattern, message, action in _LIMIT_REASONS:
        if pattern.fullmatch(name):
            return ReasonMeaning(f"{message} ({reason})", action, "submit_rejected" if action else "held")
    return ReasonMeaning(f"Slurm's reason is {reason}")
