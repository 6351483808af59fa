"""The table of failures: complete, and consistent with its own rules."""

from __future__ import annotations

import pytest

from packtrain.errors import EXIT_REQUEUE, EXIT_RESUME_IN_PLACE, FailedError, TransferError
from packtrain.events import FAILURE_KINDS, Failure, kinds
from packtrain.events.failure import ACTIONS, CONFIRM_ELSEWHERE, FAIL_JOB, RETRY, STOP_RUN

RANGES = {"user": (10, 29), "data": (30, 44), "site": (45, 59), "pool": (60, 69), "packtrain": (70, 79)}
ROWS = sorted(FAILURE_KINDS.items())


def test_exit_codes_are_unique():
    codes = [row.exit_code for row in FAILURE_KINDS.values()]
    assert len(codes) == len(set(codes))


def test_the_codes_for_going_on_are_free():
    assert (EXIT_RESUME_IN_PLACE, EXIT_REQUEUE) == (85, 86)
    assert not {85, 86} & {row.exit_code for row in FAILURE_KINDS.values()}


@pytest.mark.parametrize(("kind", "row"), ROWS, ids=[kind for kind, _ in ROWS])
def test_each_kind_keeps_the_rules(kind, row):
    first, last = RANGES[row.blame]
    assert first <= row.exit_code <= last
    assert len(row.meaning.split()) >= 3
    assert row.remedy
    assert not row.meaning.endswith(".") and not row.remedy.endswith(".")
    assert kind == kind.lower() and kind.replace("_", "").isalpha()
    assert row.action in ACTIONS
    assert not (row.transient and row.action in (CONFIRM_ELSEWHERE, STOP_RUN, FAIL_JOB)), "what may pass is tried again"


def test_only_mistakes_of_the_user_can_stop_a_run():
    assert {row.blame for row in FAILURE_KINDS.values() if row.action in (CONFIRM_ELSEWHERE, STOP_RUN)} == {"user"}


def test_a_kind_of_a_newer_version_is_tried_again_if_it_may_pass():
    newer = {"kind": "of_tomorrow", "stage": "fetch", "blame": "site", "transient": True, "detail": "d"}
    assert Failure.from_data(newer).action == RETRY
    assert Failure.from_data({**newer, "transient": False}).action == FAIL_JOB


@pytest.mark.parametrize("error", [FailedError("disk_full", "no room"), TransferError("disk_full", "no room", "x")])
def test_a_failed_error_becomes_its_failure(error):
    failure = Failure.from_error(error, "fetch")
    assert failure == Failure("disk_full", "fetch", "site", True, "no room")
    assert failure.exit_code == FAILURE_KINDS["disk_full"].exit_code


def test_any_other_error_is_internal():
    failure = Failure.from_error(ZeroDivisionError("oh"), "steps")
    assert (failure.kind, failure.detail) == ("internal", "ZeroDivisionError: oh")


def test_a_failure_survives_the_round_trip_through_an_event():
    failure = Failure.from_kind("step_failed", "steps", "exit code 3")
    assert Failure.from_data(failure.to_data()) == failure


def test_a_kind_of_a_newer_version_is_kept_with_what_it_says():
    newer = {"kind": "of_tomorrow", "stage": "fetch", "blame": "site", "transient": True, "detail": "d"}
    failure = Failure.from_data(newer)
    assert failure.to_data() == newer
    assert failure.exit_code == FAILURE_KINDS["internal"].exit_code


def test_an_unknown_kind_cannot_be_made():
    with pytest.raises(KeyError):
        Failure.from_kind("of_tomorrow", "fetch", "d")


def test_every_kind_of_event_is_described():
    named = {value for name, value in vars(kinds).items() if name.isupper() and isinstance(value, str)}
    assert named == set(kinds.EVENT_KINDS)
    assert all(kinds.EVENT_KINDS.values())
