"""How often the supervisor looks in a simulated run, and at what."""

from itertools import pairwise

from packtrain.simulate.scenarios import SCENARIOS
from packtrain.simulate.simulate_run import run_supervisor
from packtrain.state import OutcomeIndex, RunState
from tests.support.pool_models import HOUR_S, make_model, make_site


def test_all_that_runs_is_looked_at_as_often_as_matters_to_a_training(monkeypatch):
    looked = []
    looks = lambda rules: lambda state, changed, now: looked.append(now) or []  # noqa: E731
    monkeypatch.setattr("packtrain.supervise.supervisor.straggler_policy", looks)
    run_supervisor(make_model(make_site(slots=2)), SCENARIOS["packtrain"], 20, 1)
    gaps = [later - earlier for earlier, later in pairwise(looked) if earlier > 2 * HOUR_S]
    assert min(gaps) >= 70 * 60 / 40, "trainings take 70 minutes"
    assert len(gaps) > 20


def test_a_run_is_called_crowded_only_if_others_wait_for_all_machines(monkeypatch):
    answers, asked = [], RunState.is_saturated

    def answer(state: RunState) -> bool:
        answers.append(asked.fget(state))
        if answers[-1]:
            pace = state.stats.timing  # with what it did not look at
            assert pace.waiting_jobs and not pace.estimate_free_nodes()
        return answers[-1]

    monkeypatch.setattr(RunState, "is_saturated", property(answer))
    run_supervisor(make_model(make_site(slots=5)), SCENARIOS["packtrain"], 30, 1)
    assert answers.count(True) > 20
    assert not answers[-1], "at last there is room"


def test_while_it_is_crowded_nobody_reckons_how_far_each_is(monkeypatch):
    drawn, draw = [], OutcomeIndex.update_progress
    monkeypatch.setattr(OutcomeIndex, "update_progress", lambda record, job: drawn.append(job.id) or draw(record, job))
    run_supervisor(make_model(make_site(slots=5)), SCENARIOS["packtrain"], 100, 1)
    assert len(drawn) < 2 * 100, "ten times as many looks"
