"""The path from a workflow to a run on disk."""

import io
import json
import tarfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from packtrain.errors import FailedError, UsageError
from packtrain.plan import HostSpeed, read_plan
from packtrain.spec.diagnostics import WorkflowError
from packtrain.state.site_history import EMPTY_HISTORY
from packtrain.store import SqliteStore
from packtrain.submission import Goal, Progress, create_run, prepare
from packtrain.submission.progress import IndexCallbacks

RESOURCES = {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 10, "gpus": 0}
WORKFLOW = {"resources": RESOURCES, "steps": [{"run": {"command": "true"}}]}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def write_workflow(**keys) -> Path:
    Path("w.yaml").write_text(json.dumps({**WORKFLOW, **keys}))
    return Path("w.yaml")


def stream_workflow(n_samples=2):
    with tarfile.open("data.tar", "w") as tar:
        for number in range(n_samples):
            member = tarfile.TarInfo(f"class/{number}.bin")
            member.size = 4
            tar.addfile(member, io.BytesIO(b"data"))
    return {**WORKFLOW, "inputs": {"data": {"file": {"path": "data.tar"}, "mode": "stream"}}}


class Recorder(Progress):
    def __init__(self, check_cancelled=lambda: None):
        self.calls, self.diagnostics = [], []
        self._check_cancelled = check_cancelled

    def on_diagnostics(self, diagnostics):
        self.diagnostics += diagnostics

    @contextmanager
    def querying_inputs(self):
        self.calls.append("query")
        yield

    def on_summary(self, summary):
        self.calls.append(("summary", summary.disk_bytes))

    @contextmanager
    def indexing(self, name):
        self.calls.append(("indexing", name))
        yield IndexCallbacks(check_cancelled=self._check_cancelled)

    def on_index(self, name, result, duration_s):
        self.calls.append(("index", name, len(result.index)))


def test_mapping():
    submission = prepare(WORKFLOW, "local")
    assert submission.plan.name == "workflow"
    assert submission.workflow_dir == Path.cwd()


def test_file_and_mapping_have_the_same_plan():
    jobs = [prepare(source, "local").plan.jobs[0] for source in (write_workflow(), WORKFLOW)]
    assert jobs[0].steps == jobs[1].steps
    assert jobs[0].resources == jobs[1].resources


@pytest.mark.parametrize("source", [WORKFLOW, "w.yaml", Path("w.yaml")])
def test_matrix_replaces_that_of_the_workflow(source):
    write_workflow(matrix={"x": [1, 2, 3]})
    plan = prepare(source, "local", matrix={"lr": [0.1, 0.01], "path": (Path("a"),)}).plan
    points = [{var.key: var.value for var in job.point} for job in plan.jobs]
    assert points == [{"lr": "0.1", "path": "a"}, {"lr": "0.01", "path": "a"}]


def test_invalid_matrix():
    with pytest.raises(WorkflowError, match=r"matrix"):
        prepare(write_workflow(), "local", matrix={"lr": []})


def test_submit_file_has_no_matrix():
    Path("job.sub").write_text("executable = /bin/true\nqueue\n")
    with pytest.raises(UsageError, match="has no matrix"):
        prepare("job.sub", "local", matrix={"lr": [1]})


def test_errors_are_raised_with_all_diagnostics():
    recorder = Recorder()
    with pytest.raises(WorkflowError) as caught:
        prepare(write_workflow(stepz=1, expectt=[]), "local", progress=recorder)
    assert [diagnostic.is_error for diagnostic in caught.value.diagnostics] == [True, True]
    assert tuple(recorder.diagnostics) == caught.value.diagnostics
    assert str(caught.value) == "\n".join(map(str, caught.value.diagnostics))
    assert caught.value.exit_code == 2


def test_missing_secret_is_an_error_only_if_strict():
    workflow = {**WORKFLOW, "input": {"http": {"url": "http://h.org/x", "token": "${env:NOT_SET_ANYWHERE}"}}}
    with pytest.raises(WorkflowError, match="NOT_SET_ANYWHERE"):
        prepare(workflow, "local", goal=Goal.CHECK)
    (diagnostic,) = prepare(workflow, "local", goal=Goal.CHECK, strict=False).diagnostics
    assert not diagnostic.is_error


def test_check_contacts_no_server():
    recorder = Recorder()
    prepare(stream_workflow(), "local", goal=Goal.CHECK, progress=recorder)
    assert [call for call in recorder.calls if call[0] != "summary"] == []


@pytest.mark.parametrize(("offline", "size"), [(False, 10240), (True, None)])
def test_sizes(offline, size):
    stream_workflow()
    workflow = {**WORKFLOW, "input": {"file": {"path": "data.tar"}, "unpack": "never"}, "count": 2}
    submission = prepare(workflow, "local", goal=Goal.PLAN, offline=offline)
    assert [job.inputs[0].files[0].size for job in submission.plan.jobs] == [size, size]
    assert submission.summary.disk_bytes == size


def test_order_of_progress():
    recorder = Recorder()
    submission = prepare(stream_workflow(), "local", progress=recorder)
    assert recorder.calls == ["query", ("summary", 0), ("indexing", "data"), ("index", "data", 2)]
    (index_path,) = submission.index_paths
    index = submission.plan.jobs[0].inputs[0].index
    assert index.locations[0].url == (submission.run_folder.indexes.absolute() / index_path.name).as_uri()


def test_dry_run_builds_no_index():
    submission = prepare(stream_workflow(), "local", goal=Goal.DRY_RUN)
    assert submission.index_paths == ()
    assert submission.plan.jobs[0].inputs[0].index is None


def test_cancelled_index():
    def cancel():
        raise FailedError("cancelled", "stopped")

    with pytest.raises(FailedError, match="stopped"):
        prepare(stream_workflow(), "local", progress=Recorder(cancel))


def test_run_gets_the_prepared_plan(monkeypatch):
    speeds = (HostSpeed("a", 5, ""), HostSpeed("b", 6, ""))
    monkeypatch.setattr(type(EMPTY_HISTORY), "source_speeds", lambda self: speeds)
    submission = prepare(stream_workflow(), "local")
    run_info = create_run(submission, SqliteStore(Path("store.db")))
    assert read_plan(submission.run_folder.plan) == submission.plan
    assert submission.plan.host_speeds == speeds
    assert [path.name for path in submission.run_folder.indexes.iterdir()] == [submission.index_paths[0].name]
    assert read_plan(submission.run_folder.job_plan("0")) == submission.plan
    assert run_info.run == submission.plan.run
