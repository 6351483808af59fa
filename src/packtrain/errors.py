"""The exception tree, and the exit codes of the `packtrain` command.

    PacktrainError
    ├── UsageError         a person asked for something that cannot be done        exit 2
    │   └── NotFoundError  no such run, job, file, recipe                          exit 4
    ├── RefusedError       it could be done, but not now (another supervisor)      exit 3
    │   └── LeaseLostError a newer supervisor took over: stop acting
    ├── FormatError        a document of ours (plan, journal) that cannot be read  exit 5
    └── FailedError        work that failed, with the kind of failure              exit by kind
        └── TransferError  bytes that did not arrive, or not rightly

Exceptions are for code; what is recorded and judged is `events.failure.Failure`, made from a
FailedError by its kind. The agent's exit codes stand in the table there.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_INTERNAL = 1
EXIT_USAGE = 2
EXIT_UNAVAILABLE = 3
EXIT_NOT_FOUND = 4
EXIT_FORMAT = 5
EXIT_INTERRUPTED = 130

# Of the agent only: it left on purpose, and another attempt goes on where it stopped.
EXIT_RESUME_IN_PLACE = 85
EXIT_REQUEUE = 86


class PacktrainError(Exception):
    """Base of all; `str(error)` is one sentence: what failed, on what, what to do."""

    exit_code = EXIT_INTERNAL


class UsageError(PacktrainError):
    """A person asked for something that cannot be done."""

    exit_code = EXIT_USAGE


class NotFoundError(UsageError):
    """No such run, job, file or recipe."""

    exit_code = EXIT_NOT_FOUND


class UnavailableError(PacktrainError):
    """Possible in general, but not now."""

    exit_code = EXIT_UNAVAILABLE


class LeaseLostError(UnavailableError):
    """A supervisor with a newer epoch exists; this one must stop acting."""


class FormatError(PacktrainError):
    """A document of ours that cannot be read: broken, or from a newer version."""

    exit_code = EXIT_FORMAT


class FailedError(PacktrainError):
    """Work that failed. `kind` is a key of `events.failure.KINDS`."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class TransferError(FailedError):
    """Bytes that did not arrive, or not rightly. `source` is the address without secrets.

    `retry_after_s` is how long the server asked to be left alone, `status` what it answered over HTTP.
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
