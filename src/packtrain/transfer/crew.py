"""Hires workers for an engine, waits for the whole, and tells whoever wants to know how it stands."""

from __future__ import annotations

import threading

from packtrain.transfer.engine import Engine
from packtrain.transfer.keep import keeping
from packtrain.transfer.rates import Rates
from packtrain.transfer.relay import RELAY
from packtrain.transfer.worker import Worker


def run(engine: Engine) -> None:
    """All is on the shelf, or an exception says why not."""
    rates = Rates(engine)
    try:
        with keeping():
            while _looked_after(engine, rates):
                engine.wait()
    finally:
        engine.close()
        RELAY.leave(engine)


def _looked_after(engine: Engine, rates: Rates) -> bool:
    engine.wish.stop()
    wanted = engine.look()
    for _ in range(wanted or 0):
        threading.Thread(target=Worker(engine).run, name="fetch", daemon=True).start()
    if engine.known is not None:
        RELAY.want(engine, engine.known.size)
    engine.wish.progress(engine.counts.bytes, engine.known.size if engine.known else None)
    rates.observe(engine.wish.observe)
    return wanted is not None
