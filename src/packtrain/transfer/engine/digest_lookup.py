"""Asks the servers of a federation, and S3, for the digest of an object that is on its way: they state it when asked.

The best server is asked, and the origin if that does not say; XRootD's caches answer 405. An origin that makes a
digest reads the whole object for it, so all this happens beside the download, and no answer is no error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from packtrain.errors import FailedError
from packtrain.plan import Digest, Ref
from packtrain.transfer.api import Place
from packtrain.transfer.engine.coordinator import LOOK_EVERY_S, Engine, Stop
from packtrain.transfer.engine.worker import SMALL
from packtrain.transfer.http.connection import watched
from packtrain.transfer.urls import scheme_of

WAITED_S = 5.0
_FEDERATED = ("osdf", "pelican")


class Asking:
    """From `begin` to `end`: `found` gets the digest, once at most, in another thread."""

    def __init__(self, engine: Engine, found: Callable[[Digest], None]) -> None:
        self._engine, self._found = engine, found
        self._lock = threading.Lock()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="asking", daemon=True)

    def begin(self) -> None:
        wish = self._engine.wish
        if not wish.proven and any(_tells_more(ref, wish.item.size) for ref in wish.item.sources):
            self._thread.start()

    def end(self) -> None:
        with self._lock:
            self._over = True

    def wait(self, stop: Stop) -> None:
        """For the answer, but not long; none is taken later."""
        until = time.monotonic() + WAITED_S
        while self._thread.is_alive() and time.monotonic() < until:
            stop()
            self._thread.join(LOOK_EVERY_S)
        self.end()

    def _run(self) -> None:
        try:
            with watched(self._tick):
                digest = next(filter(None, map(_stated, self._places())), None)
        except _OverError:
            return
        with self._lock:
            if digest is not None and not self._over:
                self._found(digest)

    def _tick(self) -> None:
        if self._over:
            raise _OverError

    def _places(self) -> list[Place]:
        """Nobody, if the answers have a digest already, or have no size and so no end that could be foreseen."""
        engine = self._engine
        with engine.changed:
            while engine.known is None and not (engine.draining or engine.leave() or self._over):
                engine.changed.wait(LOOK_EVERY_S)
            if engine.known is None or engine.known.digest is not None:
                return []
            places = [s.place for s in engine.sources.standings if not (s.refused or s.differs)]
        return [place for last in (False, True) for place in _first(places, last)]


def _tells_more(ref: Ref, size: int | None) -> bool:
    """When asked than with the object itself. S3 keeps silent only in answers that carry a part."""
    scheme = scheme_of(ref.url)
    return scheme in _FEDERATED or (scheme == "s3" and (size is None or size > SMALL))


class _OverError(Exception):
    """Nobody wants to know any more."""


def _first(places: list[Place], last_resort: bool) -> list[Place]:
    return [place for place in places if place.last_resort is last_resort and hasattr(place.source, "digest")][:1]


def _stated(place: Place) -> Digest | None:
    try:
        found: Digest | None = getattr(place.source, "digest")(place.ref)  # noqa: B009 - an ability of some sources
        return found
    except FailedError:
        return None
