"""Exceptions, and the exit codes of the `packtrain` command.

    PacktrainError
    ├── UsageError         the request cannot be carried out                       exit 2
    │   └── NotFoundError  no such run, job, file or recipe                        exit 4
    ├── UnavailableError   possible, but not now (another supervisor is running)   exit 3
    │   └── LeaseLostError a newer supervisor holds the lease; this one must stop
    ├── FormatError        a packtrain file (plan, journal) cannot be read         exit 5
    └── FailedError        work failed; `kind` names the failure                   exit by kind
        └── TransferError  a transfer failed or delivered wrong bytes

Code raises exceptions; events record an `events.failure.Failure`, which is made from a FailedError by its kind.
The failure table there also lists the agent's exit codes.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_INTERNAL = 1
EXIT_USAGE = 2
EXIT_UNAVAILABLE = 3
EXIT_NOT_FOUND = 4
EXIT_FORMAT = 5
EXIT_INTERRUPTED = 130

# Exit codes of the agent only: it saved a checkpoint and another execution continues from it.
EXIT_RESUME_IN_PLACE = 85
EXIT_REQUEUE = 86


class PacktrainError(Exception):
    """The base class. `str(error)` is one sentence: what failed, on what, and what to do."""

    exit_code = EXIT_INTERNAL


class UsageError(PacktrainError):
    """A request that cannot be carried out."""

    exit_code = EXIT_USAGE


class NotFoundError(UsageError):
    """A run, job, file or recipe that does not exist."""

    exit_code = EXIT_NOT_FOUND


class UnavailableError(PacktrainError):
    """A request that is possible in general, but not now."""

    exit_code = EXIT_UNAVAILABLE


class LeaseLostError(UnavailableError):
    """A supervisor with a newer epoch exists; this one must stop."""


class FormatError(PacktrainError):
    """A file written by packtrain that is damaged or has an unknown version."""

    exit_code = EXIT_FORMAT


class FailedError(PacktrainError):
    """Work that failed.

    Args:
        kind: A key of `events.failure.FAILURE_KINDS`.
        detail: One sentence: what failed, on what, and what was seen.
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class TransferError(FailedError):
    """A transfer that failed or delivered wrong bytes.

    Args:
        kind: A key of `events.failure.FAILURE_KINDS`.
        detail: One sentence: what failed, on what, and what was seen.
        redacted_url: The URL without secrets.
        retry_after_s: How long the server asked clients to wait.
        http_status: The status code of the response, if there was one.
    """

    def __init__(
        self,
        kind: str,
        detail: str,
        redacted_url: str = "",
        retry_after_s: float | None = None,
        http_status: int | None = None,
    ) -> None:
        super().__init__(kind, detail)
        self.redacted_url = redacted_url
        self.retry_after_s = retry_after_s
        self.http_status = http_status
