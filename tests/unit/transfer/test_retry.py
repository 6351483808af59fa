"""Retries of one operation: delays, the retry timeout, and failures that are final."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import pytest

from packtrain.errors import TransferError
from packtrain.transfer.retry import RetryTracker, combine_errors, retry, try_ends_at
from packtrain.transfer.tasks.cancellation import TimeLimitError, check_cancelled, inherit_scope, time_limit


def make_error(kind: str, detail: str = "", retry_after_s: float | None = None) -> TransferError:
    return TransferError(kind, detail or kind, "src", retry_after_s)


def test_backoff_grows_until_retry_timeout():
    retry_tracker, now, waits = RetryTracker(100.0, 0.0), 0.0, []
    while (wait := retry_tracker.next_wait_s(make_error("service_unavailable"), now)) is not None:
        waits.append(wait)
        now += wait
    assert now == 100.0
    assert waits[:3] == [0.25, 0.5, 1.0]
    assert max(waits) == 15.0


def test_progress_restarts_retry_timeout_and_backoff():
    retry_tracker, error = RetryTracker(10.0, 0.0), make_error("truncated")
    assert [retry_tracker.next_wait_s(error, 1.0) for _ in range(3)] == [0.25, 0.5, 1.0]
    retry_tracker.record_progress(9.0)
    assert retry_tracker.next_wait_s(error, 18.0) == 0.25
    assert retry_tracker.next_wait_s(error, 19.0) is None


def test_server_asks_for_more_time():
    retry_tracker = RetryTracker(10.0, 0.0)
    assert retry_tracker.next_wait_s(make_error("service_unavailable", retry_after_s=4.0), 0.0) == 4.0
    assert retry_tracker.next_wait_s(make_error("service_unavailable", retry_after_s=60.0), 5.0) == 5.0


def test_permanent_failures_are_not_retried():
    retry_tracker = RetryTracker(100.0, 0.0)
    assert retry_tracker.next_wait_s(make_error("certificate_invalid"), 0.0) is None
    assert retry_tracker.next_wait_s(make_error("access_denied"), 0.0) is None
    assert retry_tracker.next_wait_s(make_error("access_denied"), 0.0, is_transient=True) == 0.25


def test_operation_is_retried():
    errors = [make_error("truncated"), make_error("service_unavailable")]

    def operation():
        if errors:
            raise errors.pop()
        return 5

    assert retry(operation, 10.0, lambda: None) == 5


def test_only_some_kinds_are_retried():
    calls = []

    def operation():
        calls.append(1)
        raise make_error("truncated" if len(calls) > 1 else "service_unavailable")

    with pytest.raises(TransferError, match="truncated"):
        retry(operation, 10.0, lambda: None, ["service_unavailable"])
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["object_missing", "object_missing"], "object_missing"),
        (["object_missing", "service_unavailable"], "service_unavailable"),
        (["object_missing", "host_unknown"], "host_unknown"),
        (["service_unavailable", "access_denied"], "access_denied"),
        (["truncated", "unexpected_content"], "unexpected_content"),
    ],
)
def test_combined_error(kinds, expected):
    error = combine_errors(make_error(kind, f"source {index}: {kind}") for index, kind in enumerate(kinds))
    assert error.kind == expected
    assert all(f"source {index}" in error.detail for index in range(len(kinds)))


def test_time_limit_applies_in_threads_that_inherit_the_scope():
    def check() -> str:
        check_cancelled()
        return "no limit"

    with ThreadPoolExecutor() as pool, time_limit(lambda: 0.0):
        assert isinstance(pool.submit(inherit_scope(check)).exception(), TimeLimitError)
        assert pool.submit(check).result() == "no limit"


@pytest.mark.parametrize(
    ("started_at", "retry_timeout_s", "ends_at"),
    [
        (0.0, 10.0, 10.0),
        (8.0, 10.0, 10.0),
        (10.0, 10.0, 11.0),  # the last try has a moment of its own
        (99.0, 0.0, math.inf),  # the only try has no limit
    ],
)
def test_end_of_a_try(started_at, retry_timeout_s, ends_at):
    assert try_ends_at(started_at, 0.0, retry_timeout_s) == ends_at


def test_operation_ends_by_the_retry_timeout():
    """Also if it is never silent, so that no other timeout ends it."""

    def never_end() -> None:
        while True:
            check_cancelled()

    with pytest.raises(TimeLimitError):
        retry(never_end, 1e-3, lambda: None)
