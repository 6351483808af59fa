"""`why` of what pools do, with the facts: told from logs that a real HTCondor wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from packtrain.engines.htcondor.job_tracker import JobTracker
from packtrain.engines.htcondor.log_reader import EventLogReader
from packtrain.plan import Job, Limits, Resources, RunFolder
from packtrain.state import RunState
from packtrain.store import RunInfo, SqliteStore
from packtrain.supervise import Collector
from packtrain.supervise.policies import PolicyConfig
from packtrain.views.explain import ExplainContext, JobExplanation, explain_job
from tests.support.event_builder import RUN, RunBuilder
from tests.support.paths import TESTS_DIR

LOGS = TESTS_DIR / "data" / "condor-logs"
RULES = PolicyConfig(jobs={"0": Job("0", (), Resources(), Limits(), ())}, many_sites=True)


def told(tmp_path: Path, log: str, events: int) -> JobExplanation:
    """What `why` says after so many events of the log, which is that of one job of ours."""
    path = LOGS / log
    tracker = JobTracker(lambda first: ())
    cluster = int(re.match(rb"\d+ \((\d+)\.", path.read_bytes())[1])
    tracker.add_cluster(cluster, [("0", "0-1")], is_materialized=True)
    records = EventLogReader(path).read()[:events]
    seen = [sighting for record in records for sighting in tracker.apply(record)]
    state = state_of(tmp_path, seen, records[-1].timestamp)
    return explain_job(state.jobs["0"], ExplainContext(state, RunFolder(tmp_path), True, RULES, records[-1].timestamp))


def state_of(tmp_path, sightings, now) -> RunState:
    store = SqliteStore(tmp_path / "store.db", clock=lambda: now)
    story = RunBuilder()
    story.now = now
    story.submit(is_confirmed=False)
    story.add_supervisor_event("confirmed", id="0-1", native="7.0", site="htcondor")
    store.add_run(RunInfo(RUN, "n", "htcondor", tmp_path, 1.0), story.events[0])
    store.append(story.events[1:])
    Collector(store, RUN, RunFolder(tmp_path), shares_folder=False, clock=lambda: now).collect(RunState(RUN), sightings)
    state = RunState(RUN)
    for one in store.events(RUN):
        state.apply(one.event, one.received_at)
    return state


ON = "attempt 1 on localhost.pool.test at htcondor, 0.0 s"


@pytest.mark.parametrize(
    ("log", "events", "what", "evidence"),
    [
        ("04-evict-restart.log", 7, "it waits .* again: the pool evicted it", f"{ON}: evicted"),
        ("04-evict-restart.log", 10, "it runs on localhost.pool.test", f"{ON}: evicted"),
        ("31-starter-killed.log", 8, "again: the pool lost contact with the node", f"{ON}: lease_expired"),
        ("06-hold-duration-47.log", 7, "exceeded allowed execute duration of 00:03", f"{ON}: time_limit"),
        ("66-container-launch-test-failed-loop-code45.log", 6, "the container could not be", f"{ON}: container_failed"),
    ],
)
def test_what_ended_a_start_and_where(tmp_path, log, events, what, evidence):
    said = told(tmp_path, log, events)
    assert re.search(what, said.summary)
    assert said.evidence == (evidence,)
    assert said.actions_taken == "1 attempt failed"


def test_a_machine_that_is_out_of_sight_for_a_while_is_no_news(tmp_path):
    said = told(tmp_path, "30-disconnect-reconnect-schedd-killed.log", 8)
    assert (said.summary, said.evidence) == ("it runs on localhost.pool.test, in the stage start", ())


@pytest.mark.parametrize(
    ("log", "fact"),
    [
        ("10-hold-transfer-https-404.log", "The requested URL returned error: 404 ( URL file = https://localhost:8443"),
        ("22-osdf-404.log", "URL file = osdf:///ospool/data/missing.txt"),
    ],
)
def test_a_404_that_keeps_it_back_is_the_datas_and_is_waited_for(tmp_path, log, fact):
    said = told(tmp_path, log, 7)
    assert fact in said.summary
    assert said.next_action == "packtrain lets it go again in 10 s: what kept it back may have passed"


def test_a_404_for_a_while(tmp_path):
    """Held, let go, held again and given up; the next attempt gets the data."""
    story = RunBuilder()
    story.submit()
    story.answer_hold("release", story.hold(kind="transfer_refused"))
    story.release()
    story.answer_hold("give_up", story.hold(kind="transfer_refused"))
    story.end_attempt()
    said = why(story, tmp_path)
    assert said.summary == "it is held, in the stage start (transfer_refused, in the stage start)"
    assert (said.fault, said.actions_taken) == (
        "the data or the service that gives it",
        "1 attempt failed; it was let go 1 time",
    )
    story.add_succeeded_attempt_at("Bob", 2)
    story.end_job("succeeded", emitter="agent-0-2")
    said = why(story, tmp_path)
    assert not said.has_failed and said.evidence == ("attempt 1, 0.0 s: transfer_refused",)


def test_a_cache_that_stopped(tmp_path):
    story = RunBuilder()
    detail = "osdf:///data/x.tar: the server sent nothing for 300 s"
    story.add_failed_attempt_at("Ada", 1, "service_unavailable", host="a1", detail=detail)
    said = why(story, tmp_path)
    assert said.summary.startswith(detail)
    assert said.fault == "the data or the service that gives it"
    assert said.next_action.startswith("another attempt follows") and "not on" not in said.next_action


def why(story: RunBuilder, tmp_path: Path) -> JobExplanation:
    return explain_job(story.job, ExplainContext(story.state, RunFolder(tmp_path), True, RULES, story.now))
