"""job_states: the tables of states and pending reasons."""

import pytest

from packtrain.events import FAILURE_KINDS
from packtrain.slurm.job_states import (
    GIVE_UP,
    JOB_STATES,
    PENDING_REASONS,
    RELEASE,
    WAIT,
    JobPhase,
    reason_meaning,
    state_meaning,
)


@pytest.mark.parametrize("state", JOB_STATES)
def test_states(state):
    meaning = JOB_STATES[state]
    assert meaning.failure_kind == "" or meaning.failure_kind in FAILURE_KINDS
    assert bool(meaning.message) == (meaning.phase is JobPhase.ENDED)


@pytest.mark.parametrize("reason", PENDING_REASONS)
def test_reasons(reason):
    meaning = PENDING_REASONS[reason]
    assert meaning.message and meaning.failure_kind in FAILURE_KINDS
    assert meaning.hold_action in ("", RELEASE, WAIT, GIVE_UP)


@pytest.mark.parametrize(
    ("state", "phase", "kind"),
    [
        ("CANCELLED by 1000", JobPhase.ENDED, "terminated"),
        ("CANCELLED+", JobPhase.ENDED, "terminated"),
        ("TIMEOUT", JobPhase.ENDED, "pool_time_limit"),
        ("SOMETHING_NEW", JobPhase.RUNNING, ""),
    ],
)
def test_words_of_accounting_and_unknown_states(state, phase, kind):
    meaning = state_meaning(state)
    assert (meaning.phase, meaning.failure_kind) == (phase, kind)


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Resources", "waits for free resources"),
        (
            "ReqNodeNotAvail, UnavailableNodes:n2",
            "a node that the job needs is down, drained or reserved (UnavailableNodes:n2)",
        ),
        ("AssocMaxJobsLimit", "the limit of running jobs is reached (AssocMaxJobsLimit)"),
        ("QOSMaxJobsPerUserLimit", "the limit of running jobs is reached (QOSMaxJobsPerUserLimit)"),
        ("QOSMaxGRESPerUser", "the limit of GPUs is reached (QOSMaxGRESPerUser)"),
        ("AssocGrpCpuLimit", "a limit of resources is reached (AssocGrpCpuLimit)"),
        ("MaxCpuPerAccount", "a limit of resources is reached (MaxCpuPerAccount)"),
        ("AssocGrpCPUMinutesLimit", "the limit of run time is reached (AssocGrpCPUMinutesLimit)"),
        (
            "QOSMaxWallDurationPerJobLimit",
            "the job requests more than its account or QOS allows for one job (QOSMaxWallDurationPerJobLimit)",
        ),
        ("QOSMinGRES", "the job requests less than the minimum of its QOS (QOSMinGRES)"),
        ("AssocGrpLicense", "a limit of resources is reached (AssocGrpLicense)"),
        ("SomethingNew", "Slurm's reason is SomethingNew"),
    ],
)
def test_messages(reason, message):
    assert reason_meaning(reason).message == message


@pytest.mark.parametrize("reason", ["AssocMaxCpuPerJobLimit", "QOSMaxMemoryPerNode", "QOSMinCpuNotSatisfied"])
def test_jobs_that_never_start_are_given_up(reason):
    meaning = reason_meaning(reason)
    assert (meaning.hold_action, meaning.failure_kind) == (GIVE_UP, "submit_rejected")


def test_failed_launch_is_released():
    assert reason_meaning("launch failed requeued held").hold_action == RELEASE
