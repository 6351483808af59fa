"""How often the supervisor applies policies in a simulated run, and to which jobs."""

from itertools import pairwise

from packtrain.simulate.scenarios import SCENARIOS
from packtrain.simulate.simulate_run import run_supervisor
from tests.support.pool_models import HOUR_S, make_model, make_site


def test_policy_interval_follows_training_time(monkeypatch):
    poll_times = []
    record_time = lambda rules: lambda state, changed, now: poll_times.append(now) or []  # noqa: E731
    monkeypatch.setattr("packtrain.supervise.policy_schedule.straggler_policy", record_time)
    run_supervisor(make_model(make_site(slots=2)), SCENARIOS["packtrain"], 20, 1)
    gaps = [later - earlier for earlier, later in pairwise(poll_times) if earlier > 2 * HOUR_S]
    assert min(gaps) >= 70 * 60 / 40, "trainings take 70 minutes"
    assert len(gaps) > 20
