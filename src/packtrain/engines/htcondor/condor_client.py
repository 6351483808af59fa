"""The one place that speaks with HTCondor. Foreign exceptions end here, as sentences.

htcondor2 reads CONDOR_CONFIG when it is imported, and needs seconds to load on some file systems: so it is imported
when it is first needed. After a restart of the schedd an old Schedd object fails once, so each call makes its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from packtrain.errors import FailedError, RefusedError, UsageError

T = TypeVar("T")
_TRIES = 2
# The bindings have one exception for everything; only the words differ.
_NO_ANSWER = ("locate", "connect", "contact", "communicat", "timeout", "timed out", "to send", "to receive")
# Of submissions: a limit that is reached today (-1 to -3 for a new job; -4, too many at once, stays), or a connection
# that broke before the schedd said whether it has taken them. What it says about the description itself is final.
_LATER = re.compile(
    r"create new cluster|Schedd says -[123]\b|commit transaction[\W]*$|" + "|".join(_NO_ANSWER), re.IGNORECASE
)
_FINAL = re.compile(r"Failed to create job ad|commit transaction\W+SCHEDD:", re.IGNORECASE)


class UnreachableError(RefusedError):
    """The schedd gives no answer; it may well do so later."""


def bindings() -> Any:
    """The module htcondor2. Raises UsageError."""
    try:
        import htcondor2  # type: ignore[import-untyped]
    except ImportError as error:
        raise UsageError(
            f"HTCondor's Python bindings cannot be used here ({error}); get them with `pip install packtrain[htcondor]`"
        ) from None
    return htcondor2


class Client:
    """Speaks with the schedd of this machine."""

    def submit(self, text: str) -> int:
        """The cluster's number. Asked once: an answer that was lost may have been a yes, so the queue has to be looked
        at before it is tried again. Raises FailedError(submit_refused), or UnreachableError for what may pass."""
        made = self._described(text)
        try:
            return int(bindings().Schedd().submit(made).cluster())
        except Exception as error:
            raise _not_taken(error) from None

    def _described(self, text: str) -> Any:
        with _translated("submit_refused"):
            return bindings().Submit(text)

    def query(self, constraint: str, projection: Sequence[str], clusters: bool = False) -> list[dict[str, Any]]:
        """Jobs of the queue; with `clusters`, what stands for those that are not made yet, too."""
        options = bindings().QueryOpts
        opts = options.IncludeClusterAd if clusters else options.Default
        found = self._ask(lambda schedd: schedd.query(constraint, list(projection), opts=opts))
        return [_plain(ad) for ad in found]

    def history(self, constraint: str, projection: Sequence[str], most: int) -> list[dict[str, Any]]:
        found = self._ask(lambda schedd: list(schedd.history(constraint, list(projection), match=most)))
        return [_plain(ad) for ad in found]

    def remove(self, what: str | Sequence[str], reason: str) -> None:
        self._act("Remove", what, reason)

    def release(self, what: str | Sequence[str], reason: str) -> None:
        self._act("Release", what, reason)

    def _act(self, action: str, what: str | Sequence[str], reason: str) -> None:
        """On the jobs of a constraint, or on those of a list of names; an empty list is nobody."""
        spec = what if isinstance(what, str) else list(what)
        if spec:
            job_action = getattr(bindings().JobAction, action)
            self._ask(lambda schedd: schedd.act(job_action, spec, reason=(reason, 0)))

    def param(self, name: str) -> str:
        """A setting of this access point; "" where there is none."""
        try:
            return str(bindings().param.get(name, ""))
        except Exception:  # whatever it is, the setting is not known
            return ""

    def version(self) -> tuple[str, str]:
        """Of the bindings and of the schedd."""
        module = bindings()
        try:
            ad = module.Collector().locate(module.DaemonType.Schedd)
        except Exception as error:
            raise UnreachableError(f"the HTCondor pool cannot be reached: {_sentence(error)}") from None
        return str(module.version()), str(ad.get("CondorVersion", ""))

    def _ask(self, question: Callable[[Any], T]) -> T:
        """What is only a question, or can be repeated; so it is tried again, at once and later."""
        module = bindings()
        for attempt in range(_TRIES):
            try:
                return question(module.Schedd())
            except Exception as error:
                if attempt + 1 == _TRIES:
                    raise UnreachableError(f"the HTCondor schedd cannot be reached: {_sentence(error)}") from None
        raise AssertionError("unreachable")


def _not_taken(error: Exception) -> FailedError | UnreachableError:
    said = str(error)
    if _LATER.search(said) and not _FINAL.search(said):
        return UnreachableError(f"the HTCondor schedd does not take jobs at the moment: {_sentence(error)}")
    return FailedError("submit_refused", f"HTCondor does not take it: {_sentence(error)}")


@contextmanager
def _translated(kind: str) -> Iterator[None]:
    try:
        yield
    except (UsageError, FailedError):
        raise
    except Exception as error:
        raise FailedError(kind, f"HTCondor does not take it: {_sentence(error)}") from None


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def _plain(ad: Any) -> dict[str, Any]:
    """Values as Python has them; what is undefined is left out."""
    found = {}
    for name in ad:
        value = ad.get(name)
        if isinstance(value, (str, int, float, bool)) and type(value) in (str, int, float, bool):
            found[str(name)] = value
    return found
