"""What a workflow says about failures, and the defaults by engine."""

from packtrain.plan import Recovery


def test_without_a_word_waits_go_by_the_engine(planned):
    assert planned().plan.recovery == Recovery()
    pool = planned(engine="htcondor").plan.recovery
    assert (pool.retry_delay_s, pool.max_wait_s, pool.stop_after_identical_failures) == (30.0, 600.0, 3)


def test_every_key(planned):
    made = planned(
        "limits: {maxWastedTime: 40h}\n"
        "recovery: {retryDelay: 5s, maxWait: 1m, maxFailures: 20, maxWastedTime: 200h, stopAfterIdenticalFailures: 0,"
        " avoidFor: 10m, maxMemoryFactor: 1.5, maxDiskFactor: 1, fallbackToAgent: false, maxQueueTime: 2d}\n",
        engine="htcondor",
    ).plan
    assert made.jobs[0].limits.max_wasted_time_s == 40 * 3600.0
    assert made.recovery == Recovery(
        5.0, 60.0, 20, 200 * 3600.0, 0, 600.0, 1.5, 1.0, False, max_queue_time_s=2 * 86400.0
    )


def test_a_first_wait_that_is_longer_than_the_longest(planned):
    assert planned("recovery: {retryDelay: 30m}\n").plan.recovery.max_wait_s == 1800.0
