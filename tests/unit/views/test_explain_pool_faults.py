"""`why` of what pools do, with the facts: told from logs that a real HTCondor wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from packtrain.engines.htcondor.job_tracker import Tracker
from packtrain.engines.htcondor.log_reader import LogReader
from packtrain.plan import Job, Limits, Resources, RunFolder
from packtrain.state import RunState
from packtrain.store import RunRow, SqliteStore
from packtrain.supervise import Collector
from packtrain.supervise.policies import Rules
from packtrain.views.explain import Explanation, Setting, explain_job
from tests.support.event_builder import RUN, Story
from tests.support.paths import TESTS

LOGS = TESTS / "data" / "condor-logs"
RULES = Rules(jobs={"0": Job("0", (), Resources(), Limits(), ())}, many_sites=True)


def told(tmp_path: Path, log: str, events: int) -> Explanation:
    """What `why` says after so many events of the log, which is that of one job of ours."""
    path = LOGS / log
    tracker = Tracker(lambda first: ())
    cluster = int(re.match(rb"\d+ \((\d+)\.", path.read_bytes())[1])
    tracker.add_cluster(cluster, [("0", "0-1")], materialized=True)
    records = LogReader(path).read()[:events]
    seen = [sighting for record in records for sighting in tracker.take(record)]
    state = state_of(tmp_path, seen, records[-1].when)
    return explain_job(state.jobs["0"], Setting(state, RunFolder(tmp_path), True, RULES, records[-1].when))


def state_of(tmp_path, sightings, now) -> RunState:
    store = SqliteStore(tmp_path / "store.db", clock=lambda: now)
    story = Story()
    story.now = now
    story.submit(confirm=False)
    story.supervise("confirmed", id="0-1", native="7.0", site="htcondor")
    store.add_run(RunRow(RUN, "n", "htcondor", tmp_path, 1.0), story.events[0])
    store.append(story.events[1:])
    Collector(store, RUN, RunFolder(tmp_path), shares_folder=False, clock=lambda: now).collect(RunState(RUN), sightings)
    state = RunState(RUN)
    for one in store.events(RUN):
        state.apply(one.event, one.arrived)
    return state


ON = "attempt 1 on localhost.pool.test at htcondor, 0.0 s"


@pytest.mark.parametrize(
    ("log", "events", "what", "evidence"),
    [
        ("04-evict-restart.log", 7, "it waits .* again: the pool took the machine back", f"{ON}: evicted"),
        ("04-evict-restart.log", 10, "it runs on localhost.pool.test", f"{ON}: evicted"),
        ("31-starter-killed.log", 8, "again: the machine was not heard of again", f"{ON}: lease_expired"),
        ("06-hold-duration-47.log", 7, "exceeded allowed execute duration of 00:03", f"{ON}: time_limit"),
        ("66-container-launch-test-failed-loop-code45.log", 6, "its container could not be", f"{ON}: container_failed"),
    ],
)
def test_what_ended_a_start_and_where(tmp_path, log, events, what, evidence):
    said = told(tmp_path, log, events)
    assert re.search(what, said.what)
    assert said.evidence == (evidence,)
    assert said.done == "1 attempt failed"


def test_a_machine_that_is_out_of_sight_for_a_while_is_no_news(tmp_path):
    said = told(tmp_path, "30-disconnect-reconnect-schedd-killed.log", 8)
    assert (said.what, said.evidence) == ("it runs on localhost.pool.test, in the stage start", ())


@pytest.mark.parametrize(
    ("log", "fact"),
    [
        ("10-hold-transfer-https-404.log", "The requested URL returned error: 404 ( URL file = https://localhost:8443"),
        ("22-osdf-404.log", "URL file = osdf:///ospool/data/missing.txt"),
    ],
)
def test_a_404_that_keeps_it_back_is_the_datas_and_is_waited_for(tmp_path, log, fact):
    said = told(tmp_path, log, 7)
    assert fact in said.what
    assert said.next == "packtrain lets it go again in 10 s: what kept it back may have passed"


def test_a_404_for_a_while(tmp_path):
    """Held, let go, held again and given up; the next attempt gets the data."""
    story = Story()
    story.submit()
    story.answer("release", story.held(kind="delivery_refused"))
    story.released()
    story.answer("give_up", story.held(kind="delivery_refused"))
    story.gone()
    said = why(story, tmp_path)
    assert said.what == "it is held, in the stage start (delivery_refused, in the stage start)"
    assert (said.fault, said.done) == (
        "the data or the service that gives it",
        "1 attempt failed; it was let go 1 time",
    )
    story.succeed_at("Bob", 2)
    story.verdict("succeeded", emitter="agent-0-2")
    said = why(story, tmp_path)
    assert not said.failed and said.evidence == ("attempt 1, 0.0 s: delivery_refused",)


def test_a_cache_that_stopped(tmp_path):
    story = Story()
    detail = "osdf:///data/x.tar: the server sent nothing for 300 s"
    story.fail_at("Ada", 1, "service_unavailable", host="a1", detail=detail)
    said = why(story, tmp_path)
    assert said.what.startswith(detail)
    assert said.fault == "the data or the service that gives it"
    assert said.next.startswith("another attempt follows") and "not on" not in said.next


def why(story: Story, tmp_path: Path) -> Explanation:
    return explain_job(story.job, Setting(story.state, RunFolder(tmp_path), True, RULES, story.now))
