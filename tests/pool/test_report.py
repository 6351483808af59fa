"""Reports of what really happened on a pool, held against what HTCondor itself has written down of it."""

from __future__ import annotations

import json

import pytest

from packtrain.report.history import FailureCategory, Outcome, Phase
from packtrain.report.readers.files import read_history
from packtrain.report.readers.run_store import read_run_history
from packtrain.state import fold
from packtrain.store import SqliteStore

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-2"), pytest.mark.timeout(180)]

# Each job tells that it started, waits until the test says `go`, and sends 20 MB back.
SUBMIT = """\
executable = /bin/sh
transfer_executable = false
arguments = "-c 'touch {0}/started-$(Process)-$CONDOR_STARTER_PID; while [ ! -e {0}/go ]; do sleep 0.1; done; \
head -c 20000000 /dev/zero > made'"
transfer_input_files = given
transfer_output_remaps = "made = made-$(Process)"
ulog_execute_attrs = GLIDEIN_ResourceName
queue 2
"""
WITHIN_S = 1.0


def started(desk, pattern, times):
    desk.wait_for(lambda: len(list(desk.folder.glob(f"started-{pattern}"))) >= times)


def epochs(desk, job, count):
    """What HTCondor wrote down at the end of each start of a job: some time after its log told of it."""
    return desk.wait_for(lambda: len(found := _epochs(desk.pool, job)) == count and found)


def _epochs(pool, job):
    said = pool.run_as_user(["condor_history", "-epochs", "-json", job]).stdout
    ads = [ad for ad in json.loads(said or "[]") if "JobCurrentStartDate" in ad]
    return sorted(ads, key=lambda ad: ad["JobCurrentStartDate"])


def kept_of(desk, jobs, count):
    """What HTCondor keeps of jobs that ended, by their process; it comes some time after the log told of it."""
    ads = desk.wait_for(lambda: len(found := desk.pool.history(jobs)) == count and found)
    return {int(ad["ProcId"]): ad for ad in ads}


def compare(attempt, ad):
    """With an ad of HTCondor's; one of an eviction has no durations."""

    def span(name):
        return ad[f"{name}Finished"] - ad[f"{name}Started"]

    assert attempt.site == ad["MachineAttrGLIDEIN_ResourceName0"]
    assert attempt.moves[-1].seconds == pytest.approx(span("TransferIn"), abs=WITHIN_S)
    if "ActivationDuration" in ad:
        assert attempt.seconds == pytest.approx(ad["ActivationDuration"], abs=WITHIN_S)
        assert attempt.of(Phase.EXECUTE) == pytest.approx(ad["ActivationExecutionDuration"], abs=WITHIN_S)
        assert attempt.of(Phase.TRANSFER_OUT) == pytest.approx(span("TransferOut"), abs=WITHIN_S)


def test_a_log_tells_the_seconds_of_htcondors_own_history(desk):
    (desk.folder / "given").write_bytes(bytes(30_000_000))
    jobs = desk.condor_submit(SUBMIT.format(desk.folder))
    cluster = jobs.split()[-1]
    started(desk, "*", 2)
    desk.pool.run(["condor_vacate_job", "-fast", f"{cluster}.1"])
    started(desk, "1-*", 2)
    (desk.folder / "go").touch()
    desk.wait_for(lambda: desk.read_user_log().count("\n005 (") == 2)
    history = read_history([str(desk.folder / "log")])
    assert (history.n_skipped, history.problems) == (0, ())
    straight, evicted = history.jobs
    assert [a.outcome for a in straight.executions] == [Outcome.SUCCEEDED]
    assert [(a.outcome, a.category) for a in evicted.executions] == [
        (Outcome.EVICTED, FailureCategory.EVICTION),
        (Outcome.SUCCEEDED, FailureCategory.NONE),
    ]
    kept = kept_of(desk, jobs, len(history.jobs))
    for number, job in enumerate(history.jobs):
        compare(job.executions[-1], kept[number])
        assert (job.executions[-1].input_bytes, job.executions[-1].output_bytes) == (30_000_000, 20_000_000)
        starts = epochs(desk, f"{cluster}.{number}", len(job.executions))
        for attempt, ad in zip(job.executions, starts, strict=True):
            compare(attempt, ad)


WORKFLOW = """\
name: two ways
resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 100, gpus: 0}
limits: {grace: 2s, disk: 10MB}
expect: [{path: model.txt}]
steps: [{name: train, run: {command: 'sleep 3; echo done > $DEEPSQUARE_OUTPUT/model.txt'}}]
"""


def history_from_store(desk):
    store = SqliteStore(desk.folder / "store.db")
    (row,) = store.list_runs()
    events = [stored.event for stored in store.events(row.run)]
    store.close()
    return read_run_history(fold(row.run, events), events)


def test_a_run_and_the_log_of_its_jobs_tell_the_same(desk):
    """The slot by the pool's log, what was done in it by the agent's own words; nothing is counted twice."""
    desk.write_file(WORKFLOW)
    assert desk.run_json("run", "workflow.yaml", "--on", "htcondor")["status"] == "succeeded"
    (ours,) = history_from_store(desk).jobs
    (theirs,) = read_history([str(desk.run_folder() / "htcondor/*.log")]).jobs
    assert (ours.outcome, ours.outputs_checked, theirs.outputs_checked) == (Outcome.SUCCEEDED, True, None)
    (mine,), (other,) = ours.executions, theirs.executions
    assert mine.site == other.site
    assert mine.duration_s == pytest.approx(other.duration_s, abs=2 * WITHIN_S)
    ran, told = (
        mine.seconds_in(Phase.EXECUTE),
        other.seconds_in(Phase.EXECUTE),
    )  # both fitted into the log's whole seconds
    assert ran >= 3.0 - WITHIN_S
    assert told == pytest.approx(ran, abs=2 * WITHIN_S)
    assert ours.submitted_at <= mine.start
    assert ours.ended_at == mine.end
