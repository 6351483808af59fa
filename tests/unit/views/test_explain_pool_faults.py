"""Explanations of what a pool did, from logs that a real HTCondor wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from packtrain.engines.htcondor.tracking import JobTracker
from packtrain.engines.htcondor.tracking.log_reader import EventLogReader
from packtrain.events import kinds
from packtrain.plan import Job, Limits, Resources, RunFolder
from packtrain.state import RunState
from packtrain.store import RunInfo, SqliteStore
from packtrain.supervise import Collector
from packtrain.supervise.policies import PolicyConfig
from packtrain.views.explain import ExplainContext, JobExplanation, explain_job
from tests.support.event_builder import RUN, RunBuilder
from tests.support.paths import TESTS_DIR

LOGS = TESTS_DIR / "data" / "condor-logs"
CONFIG = PolicyConfig(jobs={"0": Job("0", (), Resources(), Limits(), ())}, has_multiple_sites=True)


def explain_log(tmp_path: Path, log: str, events: int) -> JobExplanation:
    """Explain the job after the given number of events of a log, which must be that of one job."""
    path = LOGS / log
    tracker = JobTracker(lambda first: ())
    cluster = int(re.match(rb"\d+ \((\d+)\.", path.read_bytes())[1])
    tracker.add_cluster(cluster, [("0", "0-1")], is_materialized=True)
    records = EventLogReader(path).read()[:events]
    updates = [update for record in records for update in tracker.apply(record)]
    state = build_state(tmp_path, updates, records[-1].timestamp)
    return explain_job(state.jobs["0"], ExplainContext(state, RunFolder(tmp_path), True, CONFIG, records[-1].timestamp))


def build_state(tmp_path, updates, now) -> RunState:
    store = SqliteStore(tmp_path / "store.db", clock=lambda: now)
    run = RunBuilder()
    run.now = now
    run.submit(is_confirmed=False)
    run.add_supervisor_event(kinds.ATTEMPT_SUBMITTED, attempt="0-1", native_id="7.0", site="htcondor")
    store.add_run(RunInfo(RUN, "n", "htcondor", tmp_path, 1.0), run.events[0])
    store.append(run.events[1:])
    Collector(store, RUN, RunFolder(tmp_path), shares_folder=False, clock=lambda: now).collect(RunState(RUN), updates)
    state = RunState(RUN)
    for stored in store.events(RUN):
        state.apply(stored.event, stored.received_at)
    return state


EXECUTION = "execution 1 on localhost.pool.test at htcondor, 0 s"


@pytest.mark.parametrize(
    ("log", "events", "summary", "evidence"),
    [
        ("04-evict-restart.log", 7, "waiting .* again: the pool evicted it", f"{EXECUTION}: evicted"),
        ("04-evict-restart.log", 10, "running on localhost.pool.test", f"{EXECUTION}: evicted"),
        ("31-starter-killed.log", 8, "again: the pool lost contact with the node", f"{EXECUTION}: lease_expired"),
        ("06-hold-duration-47.log", 7, "exceeded allowed execute duration of 00:03", f"{EXECUTION}: pool_time_limit"),
        (
            "66-container-launch-test-failed-loop-code45.log",
            6,
            "the container could not be",
            f"{EXECUTION}: container_failed",
        ),
    ],
)
def test_interrupted_execution(tmp_path, log, events, summary, evidence):
    explanation = explain_log(tmp_path, log, events)
    assert re.search(summary, explanation.summary)
    assert explanation.evidence == (evidence,)
    assert explanation.actions_taken == "1 execution failed"


def test_reconnected_node(tmp_path):
    explanation = explain_log(tmp_path, "30-disconnect-reconnect-schedd-killed.log", 8)
    assert (explanation.summary, explanation.evidence) == ("running on localhost.pool.test, in the stage startup", ())


@pytest.mark.parametrize(
    ("log", "detail"),
    [
        ("10-hold-transfer-https-404.log", "The requested URL returned error: 404 ( URL file = https://localhost:8443"),
        ("22-osdf-404.log", "URL file = osdf:///ospool/data/missing.txt"),
    ],
)
def test_hold_because_of_404(tmp_path, log, detail):
    explanation = explain_log(tmp_path, log, 7)
    assert detail in explanation.summary
    assert explanation.next_action == "packtrain releases it in 10 s: the cause of the hold may be gone"


def test_temporary_404(tmp_path):
    """Held, released, held again and given up; the next attempt succeeds."""
    run = RunBuilder()
    run.submit()
    run.answer_hold("release", run.hold(kind="transfer_refused"))
    run.release()
    run.answer_hold("give_up", run.hold(kind="transfer_refused"))
    run.end_attempt()
    explanation = explain(run, tmp_path)
    assert explanation.summary == "it is held (transfer_refused, in the stage startup)"
    assert (explanation.fault, explanation.actions_taken) == (
        "the data or the server that provides it",
        "1 execution failed; released 1 time",
    )
    run.add_succeeded_attempt_at("Bob", 2)
    run.end_job("succeeded", emitter="agent-0-2")
    explanation = explain(run, tmp_path)
    assert not explanation.has_failed and explanation.evidence == ("execution 1, 0 s: transfer_refused",)


def test_stalled_cache(tmp_path):
    run = RunBuilder()
    detail = "osdf:///data/x.tar: the server sent nothing for 300 s"
    run.add_failed_attempt_at("Ada", 1, "service_unavailable", host="a1", detail=detail)
    explanation = explain(run, tmp_path)
    assert explanation.summary.startswith(detail)
    assert explanation.fault == "the data or the server that provides it"
    assert (
        explanation.next_action.startswith("packtrain submits another attempt")
        and "avoiding" not in explanation.next_action
    )


def explain(run: RunBuilder, tmp_path: Path) -> JobExplanation:
    return explain_job(run.job, ExplainContext(run.state, RunFolder(tmp_path), True, CONFIG, run.now))
