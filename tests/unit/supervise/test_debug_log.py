"""Debug messages of the supervisor and of engines."""

from __future__ import annotations

import logging

from tests.support.pool_updates import LocalEngineHarness, all_gone, poll_until


def test_supervisor(harness, caplog):
    with caplog.at_level(logging.DEBUG, "packtrain.supervise"):
        harness.make_supervisor(harness.make_engine()).run()
    text = caplog.text
    assert "run-1: holds the lease, epoch 1" in text and "run-1: released the lease: finished" in text
    assert "decided Submit(job='0', attempt_id='0-1'" in text and "submitted 1 attempts" in text


def test_silent_by_default(harness, capfd):
    harness.make_supervisor(harness.make_engine()).run()
    assert capfd.readouterr() == ("", "")


def test_local_engine(tmp_path, caplog):
    pool = LocalEngineHarness(tmp_path)
    engine = pool.make_engine()
    with caplog.at_level(logging.DEBUG, "packtrain.engines.local"):
        engine.submit([pool.make_request("0-1", "succeed")])
        poll_until(engine, all_gone("0-1"))
    assert "start attempt 0-1: /bin/sh " in caplog.text and "attempt 0-1 is gone: " in caplog.text
