"""The addresses of an item, and the places that they stand for: asked of the registry, and again when those fail.

For most addresses there is one place, known at once. A federation's director has to be asked over the
network, which happens in a thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Protocol

from packtrain.errors import FailedError, TransferError
from packtrain.plan import Ref
from packtrain.transfer import registry
from packtrain.transfer.api import Place, Reveal
from packtrain.transfer.engine.source_stats import Sources
from packtrain.transfer.retry import FOR_GOOD, verdict_of
from packtrain.transfer.urls import scheme_of, shown

_FEDERATED = frozenset({"osdf", "pelican"})
_AGAIN_S = 1.0
_MOST_AGAIN_S = 15.0


class Owner(Protocol):
    changed: threading.Condition
    sources: Sources

    def lead_failed(self) -> None: ...

    def broken(self, error: BaseException) -> None: ...

    def patience_ends(self) -> float: ...


class _Lead:
    def __init__(self, ref: Ref, rank: int) -> None:
        self.ref, self.rank = ref, rank
        self.asking = self.found = self.refused = False
        self.next_at, self.failed_at, self.again_s = float("-inf"), float("-inf"), _AGAIN_S / 4
        self.error: TransferError | None = None


class Leads:
    def __init__(self, refs: Sequence[Ref], reveal: Reveal, owner: Owner) -> None:
        self._leads = [_Lead(ref, rank) for rank, ref in enumerate(refs)]
        self._reveal, self._owner = reveal, owner

    def look(self, now: float) -> None:
        """Ask for what is not known yet, and anew for what no longer works."""
        for lead in self._leads:
            if lead.asking or lead.refused or now < lead.next_at or not self._wanted(lead, now):
                continue
            lead.asking = True
            if scheme_of(lead.ref.url) in _FEDERATED:
                threading.Thread(target=self._ask, args=(lead,), name="locate", daemon=True).start()
            else:
                self._ask(lead)

    def _wanted(self, lead: _Lead, now: float) -> bool:
        if not lead.found:
            return True
        if scheme_of(lead.ref.url) not in _FEDERATED:
            return False
        return not any(s.usable(now) for s in self._owner.sources.standings if s.rank == lead.rank)

    def hopeful(self, patience_ends: float) -> bool:
        """Whether some address may still turn out to stand for a place."""
        waiting = [lead for lead in self._leads if not lead.found and not lead.refused]
        return any(lead.asking or lead.failed_at < patience_ends for lead in waiting)

    def errors(self) -> list[TransferError]:
        return [lead.error for lead in self._leads if lead.error is not None and not lead.found]

    def _ask(self, lead: _Lead) -> None:
        try:
            places = registry.places_for(lead.ref, self._reveal)
            if not places:
                raise TransferError("object_missing", f"no server has {shown(lead.ref.url)}", shown(lead.ref.url))
            self._learn(lead, places)
        except TransferError as error:
            self._failed(lead, error)
        except FailedError as error:  # of this address, not of the others
            self._failed(lead, TransferError(error.kind, error.detail, shown(lead.ref.url)))
        except BaseException as error:
            self._owner.broken(error)

    def _learn(self, lead: _Lead, places: list[Place]) -> None:
        with self._owner.changed:
            lead.found, lead.asking = True, False
            lead.next_at = time.monotonic() + _AGAIN_S
            self._owner.sources.add(lead.rank, places)
            self._owner.changed.notify_all()

    def _failed(self, lead: _Lead, error: TransferError) -> None:
        with self._owner.changed:
            now = time.monotonic()
            lead.asking, lead.error, lead.failed_at = False, error, now
            # Who has let us in before does so again once the token is renewed.
            lead.refused = error.kind in FOR_GOOD and not lead.found
            wait = max(lead.again_s, error.retry_after_s or 0.0)
            lead.next_at = now + max(0.0, min(wait, self._owner.patience_ends() - now))
            lead.again_s = min(2 * lead.again_s, _MOST_AGAIN_S)
            hopeless = not self._owner.sources.standings and not self.hopeful(self._owner.patience_ends())
        if hopeless:
            self._owner.broken(verdict_of(self.errors()))
        else:
            self._owner.lead_failed()
