"""How often the supervisor applies policies in a simulated run, and to which jobs."""

from itertools import pairwise

from packtrain.simulate.scenarios import SCENARIOS
from packtrain.simulate.simulate_run import run_supervisor
from packtrain.state import OutcomeIndex, RunState
from tests.support.pool_models import HOUR_S, make_model, make_site


def test_policy_interval_follows_training_time(monkeypatch):
    poll_times = []
    record_time = lambda rules: lambda state, changed, now: poll_times.append(now) or []  # noqa: E731
    monkeypatch.setattr("packtrain.supervise.policy_schedule.straggler_policy", record_time)
    run_supervisor(make_model(make_site(slots=2)), SCENARIOS["packtrain"], 20, 1)
    gaps = [later - earlier for earlier, later in pairwise(poll_times) if earlier > 2 * HOUR_S]
    assert min(gaps) >= 70 * 60 / 40, "trainings take 70 minutes"
    assert len(gaps) > 20


def test_saturated_only_without_free_nodes(monkeypatch):
    answers, original = [], RunState.is_saturated

    def is_saturated(state: RunState) -> bool:
        answers.append(original.fget(state))
        if answers[-1]:
            timing = state.stats.timing  # computed independently of `is_saturated`
            assert timing.waiting_jobs and not timing.estimate_free_nodes()
        return answers[-1]

    monkeypatch.setattr(RunState, "is_saturated", property(is_saturated))
    run_supervisor(make_model(make_site(slots=5)), SCENARIOS["packtrain"], 30, 1)
    assert answers.count(True) > 20
    assert not answers[-1], "at the end nodes are free"


def test_no_progress_updates_while_saturated(monkeypatch):
    updated, original = [], OutcomeIndex.update_progress
    monkeypatch.setattr(
        OutcomeIndex, "update_progress", lambda record, job: updated.append(job.id) or original(record, job)
    )
    run_supervisor(make_model(make_site(slots=5)), SCENARIOS["packtrain"], 100, 1)
    assert len(updated) < 2 * 100, "the policies run ten times as often"
