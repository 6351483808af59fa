"""Recovery settings of a workflow and their defaults by engine."""

from packtrain.plan import Recovery


def test_defaults_by_engine(plan_workflow):
    assert plan_workflow().plan.recovery == Recovery()
    recovery = plan_workflow(engine="htcondor").plan.recovery
    assert (recovery.retry_delay_s, recovery.max_wait_s, recovery.stop_after_identical_failures) == (30.0, 600.0, 3)


def test_all_keys(plan_workflow):
    plan = plan_workflow(
        "limits: {maxWastedTime: 40h}\n"
        "recovery: {retryDelay: 5s, maxWait: 1m, maxFailures: 20, maxWastedTime: 200h, stopAfterIdenticalFailures: 0,"
        " avoidFor: 10m, maxMemoryFactor: 1.5, maxDiskFactor: 1, fallbackToAgent: false, maxQueueTime: 2d}\n",
        engine="htcondor",
    ).plan
    assert plan.jobs[0].limits.max_wasted_time_s == 40 * 3600.0
    assert plan.recovery == Recovery(
        5.0, 60.0, 20, 200 * 3600.0, 0, 600.0, 1.5, 1.0, False, max_queue_time_s=2 * 86400.0
    )


def test_retry_delay_raises_max_wait(plan_workflow):
    assert plan_workflow("recovery: {retryDelay: 30m}\n").plan.recovery.max_wait_s == 1800.0
