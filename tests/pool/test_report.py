"""Histories of jobs on a real pool, compared with HTCondor's own records."""

from __future__ import annotations

import json

import pytest

from packtrain.report.history import FailureCategory, Outcome, Phase
from packtrain.report.readers.files import read_history
from packtrain.report.readers.run_store import read_run_history
from packtrain.state import fold
from packtrain.store import SqliteStore

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-2"), pytest.mark.timeout(180)]

# Each job creates a file when it starts, waits for the file `go`, and returns 20 MB.
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
TOLERANCE_S = 1.0


def wait_for_starts(workspace, pattern, count):
    workspace.wait_for(lambda: len(list(workspace.folder.glob(f"started-{pattern}"))) >= count)


def wait_for_epochs(workspace, job, count):
    """Wait for the records of all executions of a job. HTCondor writes them some time after the log."""
    return workspace.wait_for(lambda: len(ads := _epochs(workspace.pool, job)) == count and ads)


def _epochs(pool, job):
    output = pool.run_as_user(["condor_history", "-epochs", "-json", job]).stdout
    ads = [ad for ad in json.loads(output or "[]") if "JobCurrentStartDate" in ad]
    return sorted(ads, key=lambda ad: ad["JobCurrentStartDate"])


def wait_for_history(workspace, jobs, count):
    """Wait for the history of all jobs, by process id. HTCondor writes it some time after the log."""
    ads = workspace.wait_for(lambda: len(found := workspace.pool.history(jobs)) == count and found)
    return {int(ad["ProcId"]): ad for ad in ads}


def compare(execution, ad):
    """Compare with an ad of HTCondor. The ad of an eviction has no durations."""

    def span(name):
        return ad[f"{name}Finished"] - ad[f"{name}Started"]

    assert execution.site == ad["MachineAttrGLIDEIN_ResourceName0"]
    assert execution.input_transfers[-1].duration_s == pytest.approx(span("TransferIn"), abs=TOLERANCE_S)
    if "ActivationDuration" in ad:
        assert execution.duration_s == pytest.approx(ad["ActivationDuration"], abs=TOLERANCE_S)
        assert execution.seconds_in(Phase.EXECUTE) == pytest.approx(ad["ActivationExecutionDuration"], abs=TOLERANCE_S)
        assert execution.seconds_in(Phase.TRANSFER_OUT) == pytest.approx(span("TransferOut"), abs=TOLERANCE_S)


def test_log_matches_condor_history(workspace):
    (workspace.folder / "given").write_bytes(bytes(30_000_000))
    jobs = workspace.condor_submit(SUBMIT.format(workspace.folder))
    cluster = jobs.split()[-1]
    wait_for_starts(workspace, "*", 2)
    workspace.pool.run_as_user(["condor_vacate_job", "-fast", f"{cluster}.1"])
    wait_for_starts(workspace, "1-*", 2)
    (workspace.folder / "go").touch()
    workspace.wait_for(lambda: workspace.read_user_log().count("\n005 (") == 2)
    history = read_history([str(workspace.folder / "log")])
    assert (history.n_skipped, history.problems) == (0, ())
    uninterrupted, evicted = history.jobs
    assert [execution.outcome for execution in uninterrupted.executions] == [Outcome.SUCCEEDED]
    assert [(execution.outcome, execution.category) for execution in evicted.executions] == [
        (Outcome.EVICTED, FailureCategory.EVICTION),
        (Outcome.SUCCEEDED, FailureCategory.NONE),
    ]
    ads = wait_for_history(workspace, jobs, len(history.jobs))
    for number, job in enumerate(history.jobs):
        compare(job.executions[-1], ads[number])
        assert (job.executions[-1].input_bytes, job.executions[-1].output_bytes) == (30_000_000, 20_000_000)
        epochs = wait_for_epochs(workspace, f"{cluster}.{number}", len(job.executions))
        for execution, ad in zip(job.executions, epochs, strict=True):
            compare(execution, ad)


WORKFLOW = """\
name: two ways
resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 100, gpus: 0}
limits: {grace: 2s, disk: 10MB}
expect: [{path: model.txt}]
steps: [{name: train, run: {command: 'sleep 3; echo done > $DEEPSQUARE_OUTPUT/model.txt'}}]
"""


def history_from_store(workspace):
    store = SqliteStore(workspace.folder / "store.db")
    (row,) = store.list_runs()
    events = [stored.event for stored in store.events(row.run)]
    store.close()
    return read_run_history(fold(row.run, events), events)


def test_run_matches_its_log(workspace):
    """Slot times come from the pool's log and phases from the agent; nothing is counted twice."""
    workspace.write_file(WORKFLOW)
    assert workspace.run_json("run", "workflow.yaml", "--on", "htcondor")["status"] == "succeeded"
    (job,) = history_from_store(workspace).jobs
    (logged_job,) = read_history([str(workspace.run_folder() / "htcondor/*.log")]).jobs
    assert (job.outcome, job.outputs_checked, logged_job.outputs_checked) == (Outcome.SUCCEEDED, True, None)
    (execution,), (logged,) = job.executions, logged_job.executions
    assert execution.site == logged.site
    assert execution.duration_s == pytest.approx(logged.duration_s, abs=2 * TOLERANCE_S)
    # Both are fitted into the whole seconds of the log.
    executed_s, logged_s = execution.seconds_in(Phase.EXECUTE), logged.seconds_in(Phase.EXECUTE)
    assert executed_s >= 3.0 - TOLERANCE_S
    assert logged_s == pytest.approx(executed_s, abs=2 * TOLERANCE_S)
    assert job.submitted_at <= execution.start
    assert job.ended_at == execution.end
