"""How often the supervisor applies policies in a simulated run, and to which jobs."""

from itertools import pairwise

from packtrain.simulate.archiving_state import ArchivingRunState
from packtrain.simulate.scenarios import SCENARIOS
from packtrain.simulate.simulate_run import run_supervisor
from packtrain.state import JobStatus
from tests.support.event_builder import RUN, RunBuilder
from tests.support.pool_models import HOUR_S, make_model, make_site


def test_policy_interval_follows_training_time(monkeypatch):
    poll_times = []
    record_time = lambda rules: lambda state, changed, now: poll_times.append(now) or []  # noqa: E731
    monkeypatch.setattr("packtrain.supervise.policy_schedule.straggler_policy", record_time)
    run_supervisor(make_model(make_site(slots=2)), SCENARIOS["packtrain"], 20, 1)
    gaps = [later - earlier for earlier, later in pairwise(poll_times) if earlier > 2 * HOUR_S]
    assert min(gaps) >= 70 * 60 / 40, "trainings take 70 minutes"
    assert len(gaps) > 20


def test_archived_jobs_keep_their_result():
    run = RunBuilder("0", "1")
    state = ArchivingRunState(RUN, ("0", "1"))
    run.add_failed_attempt(1, "step_failed")
    run.end_job("failed")
    for event in run.events:
        state.apply(event)
    assert len(state.jobs["0"].executions) == 1 and state.stats.n_failures == 1
    run.submit("0-2")
    for event in run.events:
        state.apply(event)
    state.update_progress({"0-1": {"attempt": "0-1", "stage": "fetch"}})
    assert (state.jobs["0"].status, state.jobs["0"].executions) == (JobStatus.FAILED, ())
    assert (state.jobs["1"].status, state.stats.n_failures, state.is_finished) == (JobStatus.WAITING, 1, False)
