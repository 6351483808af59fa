"""What a workflow says about failures, and the defaults by engine."""

from packtrain.plan import Recovery


def test_without_a_word_waits_go_by_the_engine(planned):
    assert planned().plan.recovery == Recovery()
    pool = planned(engine="htcondor").plan.recovery
    assert (pool.wait_s, pool.longest_wait_s, pool.stop_after) == (30.0, 600.0, 3)


def test_every_key(planned):
    made = planned(
        "limits: {wasted: 40h}\n"
        "recovery: {wait: 5s, longestWait: 1m, failures: 20, wasted: 200h, stopAfter: 0, avoid: 10m, mostMemory: 1.5,"
        " mostDisk: 1, switchDelivery: false, longestQueue: 2d}\n",
        engine="htcondor",
    ).plan
    assert made.jobs[0].limits.wasted_s == 40 * 3600.0
    assert made.recovery == Recovery(
        5.0, 60.0, 20, 200 * 3600.0, 0, 600.0, 1.5, 1.0, False, longest_queue_s=2 * 86400.0
    )


def test_a_first_wait_that_is_longer_than_the_longest(planned):
    assert planned("recovery: {wait: 30m}\n").plan.recovery.longest_wait_s == 1800.0
