"""The only module that calls HTCondor's Python bindings. Converts their exceptions to packtrain's.

htcondor2 reads CONDOR_CONFIG when it is imported, and takes seconds to load on some file systems. It is therefore
imported on first use. After a restart of the schedd an old Schedd object fails once, so each call creates a new one.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from packtrain.errors import FailedError, UnavailableError, UsageError

T = TypeVar("T")
_logger = logging.getLogger("packtrain.engines.htcondor")
# The bindings raise one exception type for everything; only the messages differ.
_UNREACHABLE_MARKERS = ("locate", "connect", "contact", "communicat", "timeout", "timed out", "to send", "to receive")
# A limit that is currently reached (-1 to -3 for a new job; -4, too many jobs in one submission, is permanent), or a
# connection that broke before the schedd accepted the submission. Errors in the description itself are permanent.
_RETRYABLE_SUBMIT_ERROR = re.compile(
    r"create new cluster|Schedd says -[123]\b|commit transaction[\W]*$|" + "|".join(_UNREACHABLE_MARKERS), re.IGNORECASE
)
_PERMANENT_SUBMIT_ERROR = re.compile(r"Failed to create job ad|commit transaction\W+SCHEDD:", re.IGNORECASE)


class ScheddUnreachableError(UnavailableError):
    """The schedd does not answer at the moment."""


class RetryTimer:
    """When a schedd that did not answer may be called again."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s, self._retry_at = interval_s, 0.0  # monotonic

    @property
    def is_due(self) -> bool:
        """Whether the schedd may be called."""
        return time.monotonic() >= self._retry_at

    def postpone(self) -> None:
        """Call this when the schedd did not answer."""
        self._retry_at = time.monotonic() + self._interval_s


def load_bindings() -> Any:
    """Import htcondor2. Raises UsageError if it is not installed."""
    try:
        import htcondor2  # type: ignore[import-untyped]
    except ImportError as error:
        raise UsageError(
            f"HTCondor's Python bindings cannot be imported ({error}); install them: `pip install packtrain[htcondor]`"
        ) from None
    return htcondor2


class CondorClient:
    """Calls the schedd of this machine."""

    def submit(self, description: str) -> int:
        """Submit a description once and return the number of the cluster.

        If the answer of the schedd is lost, it may have accepted the submission: check the queue before trying again.
        Raises FailedError (submit_rejected) if the description is rejected, or ScheddUnreachableError for temporary
        errors.
        """
        module = load_bindings()
        try:
            submit = module.Submit(description)
        except Exception as error:
            raise _rejection(error) from None
        try:
            return int(module.Schedd().submit(submit).cluster())
        except Exception as error:
            raise _submit_error(error) from None

    def query(self, constraint: str, projection: Sequence[str], include_clusters: bool = False) -> list[dict[str, Any]]:
        """Return the ads of jobs in the queue. Raises ScheddUnreachableError.

        Args:
            constraint: A ClassAd expression.
            projection: The attributes to return.
            include_clusters: Also return the ads of clusters, whose items are not all jobs yet.
        """
        _logger.debug("query the queue: %s", constraint)
        options = load_bindings().QueryOpts
        opts = options.IncludeClusterAd if include_clusters else options.Default
        ads = self._call_schedd(lambda schedd: schedd.query(constraint, list(projection), opts=opts))
        return [_ad_to_dict(ad) for ad in ads]

    def query_history(self, constraint: str, projection: Sequence[str], max_results: int) -> list[dict[str, Any]]:
        """Return the ads of jobs that have left the queue. Raises ScheddUnreachableError."""
        _logger.debug("query the history: %s", constraint)
        ads = self._call_schedd(lambda schedd: list(schedd.history(constraint, list(projection), match=max_results)))
        return [_ad_to_dict(ad) for ad in ads]

    def remove(self, jobs: str | Sequence[str], reason: str) -> None:
        """Remove jobs: a constraint, or a list of native ids. Raises ScheddUnreachableError."""
        self._act("Remove", jobs, reason)

    def release(self, jobs: str | Sequence[str], reason: str) -> None:
        """Release held jobs: a constraint, or a list of native ids. Raises ScheddUnreachableError."""
        self._act("Release", jobs, reason)

    def _act(self, action: str, jobs: str | Sequence[str], reason: str) -> None:
        spec = jobs if isinstance(jobs, str) else list(jobs)
        if spec:  # an empty constraint would mean all jobs
            _logger.debug("%s jobs %s (%s)", action.lower(), spec, reason)
            job_action = getattr(load_bindings().JobAction, action)
            self._call_schedd(lambda schedd: schedd.act(job_action, spec, reason=(reason, 0)))

    def get_param(self, name: str) -> str:
        """Return a configuration value of this access point, or "" if it is not set."""
        try:
            return str(load_bindings().param.get(name, ""))
        except Exception:  # for any reason, the value is unknown
            return ""

    def get_versions(self) -> tuple[str, str]:
        """Return the versions of the bindings and of the schedd. Raises ScheddUnreachableError."""
        module = load_bindings()
        try:
            ad = module.Collector().locate(module.DaemonType.Schedd)
        except Exception as error:
            raise ScheddUnreachableError(f"the HTCondor pool cannot be reached: {_error_text(error)}") from None
        return str(module.version()), str(ad.get("CondorVersion", ""))

    def _call_schedd(self, call: Callable[[Any], T]) -> T:
        """Call the schedd, and repeat the call once if it fails. Only for calls that are repeatable."""
        module = load_bindings()
        try:
            return call(module.Schedd())
        except Exception as error:
            _logger.debug("the schedd failed, trying again: %s", _error_text(error))
        try:
            return call(module.Schedd())
        except Exception as error:
            raise ScheddUnreachableError(f"the HTCondor schedd cannot be reached: {_error_text(error)}") from None


def _submit_error(error: Exception) -> FailedError | ScheddUnreachableError:
    text = str(error)
    if _RETRYABLE_SUBMIT_ERROR.search(text) and not _PERMANENT_SUBMIT_ERROR.search(text):
        return ScheddUnreachableError(f"the HTCondor schedd does not accept jobs at the moment: {_error_text(error)}")
    return _rejection(error)


def _rejection(error: Exception) -> FailedError:
    return FailedError("submit_rejected", f"HTCondor rejected the submission: {_error_text(error)}")


def _error_text(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def _ad_to_dict(ad: Any) -> dict[str, Any]:
    """Return the attributes that are plain values; others, such as undefined ones, are left out."""
    values = {}
    for name in ad:
        value = ad.get(name)
        if isinstance(value, (str, int, float, bool)) and type(value) in (str, int, float, bool):
            values[str(name)] = value
    return values
