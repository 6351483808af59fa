"""The table of failure kinds is complete and consistent."""

from __future__ import annotations

import pytest

from packtrain.errors import EXIT_REQUEUE, EXIT_RESUME_IN_PLACE, FailedError, TransferError
from packtrain.events import FAILURE_KINDS, Failure, kinds
from packtrain.events.failure import ACTIONS, CONFIRM_ELSEWHERE, FAIL_JOB, RETRY, STOP_RUN

RANGES = {"user": (10, 29), "data": (30, 42), "site": (43, 59), "pool": (60, 69), "packtrain": (70, 79)}
SORTED_KINDS = sorted(FAILURE_KINDS.items())


def test_exit_codes_are_unique():
    codes = [kind_info.exit_code for kind_info in FAILURE_KINDS.values()]
    assert len(codes) == len(set(codes))


def test_resume_exit_codes_are_reserved():
    assert (EXIT_RESUME_IN_PLACE, EXIT_REQUEUE) == (85, 86)
    assert not {85, 86} & {kind_info.exit_code for kind_info in FAILURE_KINDS.values()}


@pytest.mark.parametrize(("kind", "kind_info"), SORTED_KINDS, ids=[kind for kind, _ in SORTED_KINDS])
def test_failure_kind(kind, kind_info):
    first, last = RANGES[kind_info.blame]
    assert first <= kind_info.exit_code <= last
    assert len(kind_info.meaning.split()) >= 3
    assert kind_info.remedy
    assert not kind_info.meaning.endswith(".") and not kind_info.remedy.endswith(".")
    assert kind == kind.lower() and kind.replace("_", "").isalpha()
    assert kind_info.action in ACTIONS
    assert not (kind_info.transient and kind_info.action in (CONFIRM_ELSEWHERE, STOP_RUN, FAIL_JOB)), (
        "transient failures are retried"
    )


def test_only_user_errors_stop_a_run():
    assert {
        kind_info.blame for kind_info in FAILURE_KINDS.values() if kind_info.action in (CONFIRM_ELSEWHERE, STOP_RUN)
    } == {"user"}


def test_action_of_unknown_kind():
    data = {"kind": "future_kind", "stage": "fetch", "blame": "site", "transient": True, "detail": "d"}
    assert Failure.from_data(data).action == RETRY
    assert Failure.from_data({**data, "transient": False}).action == FAIL_JOB


@pytest.mark.parametrize("error", [FailedError("disk_full", "no room"), TransferError("disk_full", "no room", "x")])
def test_from_failed_error(error):
    failure = Failure.from_error(error, "fetch")
    assert failure == Failure("disk_full", "fetch", "site", True, "no room")
    assert failure.exit_code == FAILURE_KINDS["disk_full"].exit_code


def test_from_other_error():
    failure = Failure.from_error(ZeroDivisionError("oh"), "steps")
    assert (failure.kind, failure.detail) == ("internal", "ZeroDivisionError: oh")


def test_round_trip():
    failure = Failure.from_kind("step_failed", "steps", "exit code 3")
    assert Failure.from_data(failure.to_data()) == failure


def test_unknown_kind_keeps_its_data():
    data = {"kind": "future_kind", "stage": "fetch", "blame": "site", "transient": True, "detail": "d"}
    failure = Failure.from_data(data)
    assert failure.to_data() == data
    assert failure.exit_code == FAILURE_KINDS["internal"].exit_code


def test_from_unknown_kind():
    with pytest.raises(KeyError):
        Failure.from_kind("future_kind", "fetch", "d")


def test_event_kinds_are_described():
    constants = {value for name, value in vars(kinds).items() if name.isupper() and isinstance(value, str)}
    assert constants == set(kinds.EVENT_KINDS)
    assert all(kinds.EVENT_KINDS.values())
