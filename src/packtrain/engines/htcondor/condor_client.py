"""The one place that speaks with HTCondor. Foreign exceptions end here, as sentences.

htcondor2 reads CONDOR_CONFIG when it is imported, and needs seconds to load on some file systems: so it is imported
when it is first needed. After a restart of the schedd an old Schedd object fails once, so each call makes its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from packtrain.errors import FailedError, UnavailableError, UsageError

T = TypeVar("T")
_MAX_TRIES = 2
# The bindings have one exception for everything; only the words differ.
_UNREACHABLE_MARKERS = ("locate", "connect", "contact", "communicat", "timeout", "timed out", "to send", "to receive")
# Of submissions: a limit that is reached today (-1 to -3 for a new job; -4, too many at once, stays), or a connection
# that broke before the schedd said whether it has taken them. What it says about the description itself is final.
_RETRYABLE_SUBMIT_ERROR = re.compile(
    r"create new cluster|Schedd says -[123]\b|commit transaction[\W]*$|" + "|".join(_UNREACHABLE_MARKERS), re.IGNORECASE
)
_PERMANENT_SUBMIT_ERROR = re.compile(r"Failed to create job ad|commit transaction\W+SCHEDD:", re.IGNORECASE)


class ScheddUnreachableError(UnavailableError):
    """The schedd gives no answer; it may well do so later."""


def load_bindings() -> Any:
    """The module htcondor2. Raises UsageError."""
    try:
        import htcondor2  # type: ignore[import-untyped]
    except ImportError as error:
        raise UsageError(
            f"HTCondor's Python bindings cannot be used here ({error}); get them with `pip install packtrain[htcondor]`"
        ) from None
    return htcondor2


class CondorClient:
    """Speaks with the schedd of this machine."""

    def submit(self, description: str) -> int:
        """The cluster's number. Asked once: an answer that was lost may have been a yes, so the queue has to be looked
        at before it is tried again. Raises FailedError(submit_rejected), or UnreachableError for what may pass."""
        made = self._parse_description(description)
        try:
            return int(load_bindings().Schedd().submit(made).cluster())
        except Exception as error:
            raise _submit_error(error) from None

    def _parse_description(self, description: str) -> Any:
        with _translate_errors("submit_rejected"):
            return load_bindings().Submit(description)

    def query(self, constraint: str, projection: Sequence[str], include_clusters: bool = False) -> list[dict[str, Any]]:
        """Jobs of the queue; with `clusters`, what stands for those that are not made yet, too."""
        options = load_bindings().QueryOpts
        opts = options.IncludeClusterAd if include_clusters else options.Default
        found = self._call_schedd(lambda schedd: schedd.query(constraint, list(projection), opts=opts))
        return [_ad_to_dict(ad) for ad in found]

    def query_history(self, constraint: str, projection: Sequence[str], max_results: int) -> list[dict[str, Any]]:
        found = self._call_schedd(lambda schedd: list(schedd.history(constraint, list(projection), match=max_results)))
        return [_ad_to_dict(ad) for ad in found]

    def remove(self, jobs: str | Sequence[str], reason: str) -> None:
        self._act("Remove", jobs, reason)

    def release(self, jobs: str | Sequence[str], reason: str) -> None:
        self._act("Release", jobs, reason)

    def _act(self, action: str, jobs: str | Sequence[str], reason: str) -> None:
        """On the jobs of a constraint, or on those of a list of names; an empty list is nobody."""
        spec = jobs if isinstance(jobs, str) else list(jobs)
        if spec:
            job_action = getattr(load_bindings().JobAction, action)
            self._call_schedd(lambda schedd: schedd.act(job_action, spec, reason=(reason, 0)))

    def get_param(self, name: str) -> str:
        """A setting of this access point; "" where there is none."""
        try:
            return str(load_bindings().param.get(name, ""))
        except Exception:  # whatever it is, the setting is not known
            return ""

    def get_versions(self) -> tuple[str, str]:
        """Of the bindings and of the schedd."""
        module = load_bindings()
        try:
            ad = module.Collector().locate(module.DaemonType.Schedd)
        except Exception as error:
            raise ScheddUnreachableError(f"the HTCondor pool cannot be reached: {_error_text(error)}") from None
        return str(module.version()), str(ad.get("CondorVersion", ""))

    def _call_schedd(self, call: Callable[[Any], T]) -> T:
        """What is only a question, or can be repeated; so it is tried again, at once and later."""
        module = load_bindings()
        for attempt in range(_MAX_TRIES):
            try:
                return call(module.Schedd())
            except Exception as error:
                if attempt + 1 == _MAX_TRIES:
                    raise ScheddUnreachableError(
                        f"the HTCondor schedd cannot be reached: {_error_text(error)}"
                    ) from None
        raise AssertionError("unreachable")


def _submit_error(error: Exception) -> FailedError | ScheddUnreachableError:
    said = str(error)
    if _RETRYABLE_SUBMIT_ERROR.search(said) and not _PERMANENT_SUBMIT_ERROR.search(said):
        return ScheddUnreachableError(f"the HTCondor schedd does not take jobs at the moment: {_error_text(error)}")
    return FailedError("submit_rejected", f"HTCondor does not take it: {_error_text(error)}")


@contextmanager
def _translate_errors(failure_kind: str) -> Iterator[None]:
    try:
        yield
    except (UsageError, FailedError):
        raise
    except Exception as error:
        raise FailedError(failure_kind, f"HTCondor does not take it: {_error_text(error)}") from None


def _error_text(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def _ad_to_dict(ad: Any) -> dict[str, Any]:
    """Values as Python has them; what is undefined is left out."""
    found = {}
    for name in ad:
        value = ad.get(name)
        if isinstance(value, (str, int, float, bool)) and type(value) in (str, int, float, bool):
            found[str(name)] = value
    return found
