"""Hires workers for an engine, waits for the whole, and tells whoever wants to know how it stands."""

from __future__ import annotations

import threading

from packtrain.transfer.engine.coordinator import Engine
from packtrain.transfer.engine.worker import Worker
from packtrain.transfer.http.pool import keeping
from packtrain.transfer.http.tls_process import RELAY
from packtrain.transfer.speed_meter import Rates


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
