"""The one place that speaks with HTCondor. Foreign exceptions end here, as sentences.

htcondor2 reads CONDOR_CONFIG when it is imported, and needs seconds to load on some file systems: so it is imported
when it is first needed. After a restart of the schedd an old Schedd object fails once, so each call makes its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from packtrain.errors import FailedError, RefusedError, UsageError

T = TypeVar("T")
_TRIES = 2
# The bindings have one exception for everything; only the words differ.
_NO_ANSWER = ("locate", "connect", "contact", "communicat", "timeout", "timed out", "to send", "to receive")


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
        """The cluster's number. Raises FailedError(submit_refused) or UnreachableError."""
        made = self._described(text)
        return int(self._ask(lambda schedd: schedd.submit(made), refusable=True).cluster())

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

    def _ask(self, question: Callable[[Any], T], refusable: bool = False) -> T:
        """`refusable`: an answer may be no. What is only a question, or can be repeated, is tried again later."""
        module = bindings()
        for attempt in range(_TRIES):
            try:
                return question(module.Schedd())
            except Exception as error:
                if refusable and not any(word in str(error).lower() for word in _NO_ANSWER):
                    raise FailedError("submit_refused", f"HTCondor does not take it: {_sentence(error)}") from None
                if attempt + 1 == _TRIES:
                    raise UnreachableError(f"the HTCondor schedd cannot be reached: {_sentence(error)}") from None
        raise AssertionError("unreachable")


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
