"""Plans of workflows that name a Pixi environment."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from packtrain import plan
from packtrain.planner.make_plan import make_plan
from packtrain.planner.pixi_planner import add_download_sizes
from packtrain.planner.pixi_workspaces import DownloadSize
from packtrain.planner.plan_summary import summarize_plan
from packtrain.spec.load import load_workflow_file, load_workflow_text
from testbed.http_server import HttpServer
from testbed.pixi.packages import build_wheel
from tests.support.paths import TESTS_DIR
from tests.support.pixi_locks import conda, local, lock_text, wheel, write_files

GOLDEN = TESTS_DIR / "golden"
RESOURCES = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}\n"
ENVIRONMENT = "environment: {pixi: {}}\n"
TASKS = '[tasks]\nhello = "echo hello"\n'


def without_archive_size(encoded):
    """The size of the archive depends on the version of zlib."""
    for job in encoded["jobs"]:
        (archive,) = job["inputs"][-1]["files"]
        assert archive.pop("size") > 0
    return encoded


def test_golden_plan():
    loaded = load_workflow_file(GOLDEN / "workflows/pixi/workflow.yaml")
    folder = plan.RunFolder(Path("/runs/r1"))
    result = make_plan(
        loaded.workflow, run="r1", engine="local", workflow_dir=GOLDEN / "workflows/pixi", run_folder=folder
    )
    assert result.diagnostics == ()
    path = GOLDEN / "plans/pixi.json"
    assert without_archive_size(plan.encode(result.plan)) == json.loads(path.read_text())
    lock = plan.encode(result.workspaces.environments["gpu"].lock)
    assert lock == json.loads((GOLDEN / "plans/pixi-environment.json").read_text())


@pytest.fixture
def make(tmp_path):
    """Return a function that plans a workflow in a workspace."""

    def make_result(steps, *, manifest=TASKS, lock="", environment=ENVIRONMENT, resources=RESOURCES, **options):
        write_files(tmp_path, manifest, lock or lock_text({"linux-64": []}))
        loaded = load_workflow_text(f"{resources}{environment}steps: {steps}\n", str(tmp_path / "w.yaml"))
        assert loaded.workflow is not None, [str(diagnostic) for diagnostic in loaded.diagnostics]
        folder = plan.RunFolder(tmp_path / "run")
        return make_plan(loaded.workflow, run="r1", engine="local", workflow_dir=tmp_path, run_folder=folder, **options)

    return make_result


def messages(result):
    return [str(diagnostic).partition("w.yaml:")[2].partition(" ")[2] for diagnostic in result.diagnostics]


def test_steps_start_in_the_workspace(make):
    image = "{image: ubuntu:24.04}"
    runs = ("command: ls", "command: ls, workDir: own", f"command: ls, container: {image}")
    (job,) = make(f"[{', '.join(f'{{run: {{{run}}}}}' for run in runs)}]").plan.jobs
    assert [step.action.work_dir for step in job.steps] == ["inputs/workspace", "own", ""]


def test_outputs_of_a_task_are_those_of_its_last_command(make):
    manifest = '[tasks]\na = "a"\nb = { cmd = "b", cwd = "sub", depends-on = ["a"], env = { X = "1" } }\n'
    step = "{name: s, run: {task: b, collect: [x], stdout: out.txt, env: [{key: X, value: '2'}]}}"
    (job,) = make(f"[{step}]", manifest=manifest).plan.jobs
    first, last = (inner.action for inner in job.steps[0].action.steps)
    assert (first.command, first.work_dir, first.collect, first.stdout) == ("a", "inputs/workspace", (), "")
    assert (last.command, last.work_dir) == ("b", "inputs/workspace/sub")
    assert (last.collect, last.stdout) == ((plan.CollectedOutput("x"),), "out.txt")
    assert last.env == (plan.EnvVar("X", "1"), plan.EnvVar("X", "2"))


@pytest.mark.parametrize(
    ("steps", "options", "message"),
    [
        ("[{run: {task: helo}}]", {}, "the environment 'default' has no task 'helo'; did you mean 'hello'?"),
        (
            "[{run: {task: hello}}]",
            {"environment": ""},
            "the task 'hello' needs a Pixi environment; add `environment: {pixi: {manifest: pixi.toml}}`",
        ),
        (
            "[{run: {task: hello}}]",
            {"manifest": TASKS + '[dependencies]\nnumpy = "*"\n'},
            "FOLDER/pixi.lock is older than pixi.toml: numpy is not in it; run `pixi lock`",
        ),
        (
            "[{run: {task: hello}}]",
            {"environment": ENVIRONMENT + "inputs: {workspace: {file: {path: pixi.toml}}}\n"},
            "the files of the Pixi workspace are the input 'workspace', too; give your input another name",
        ),
        (
            "[{run: {task: hello}}]",
            {"environment": "environment: {pixi: {store: 'https://store.example.org/'}}\n"},
            "packages cannot be listed and uploaded on a web server; use s3, osdf or file",
        ),
        (
            "[{run: {task: hello}}]",
            {"manifest": TASKS + '[activation]\nscripts = ["gone.sh"]\n'},
            "warning: the activation script gone.sh does not exist in FOLDER",
        ),
        (
            "[{run: {task: hello}}]",
            {"manifest": TASKS + '[system-requirements]\ncuda = "12"\n'},
            "warning: the environment 'default' is for CUDA 12, but the job has no GPU; "
            "request one with `gpus` in `resources`",
        ),
    ],
)
def test_diagnostics(make, tmp_path, steps, options, message):
    assert messages(make(steps, **options)) == [message.replace("FOLDER", str(tmp_path))]


@pytest.mark.parametrize(
    ("requested", "expected"), [("", "12.4"), ("12.8", "12.8"), ("12.3", "12.4"), ("12.10", "12.10")]
)
def test_cuda_version_of_the_job(make, requested, expected):
    gpu = f", gpu: {{minCuda: '{requested}'}}" if requested else ""
    lock = lock_text({"linux-64": [conda("torch", depends=["__cuda >=12.4"])]})
    resources = f"resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 2{gpu}}}\n"
    steps = "[{run: {command: ls}}]"
    (job,) = make(steps, lock=lock, resources=resources).plan.jobs
    assert job.resources.gpu.min_cuda == expected
    assert job.environment.pixi.requires.min_cuda == "12.4"
    (job,) = make(steps, lock=lock, resources=resources, no_gpu=True).plan.jobs
    assert (job.resources.gpu.min_cuda, job.environment.pixi.requires.min_cuda) == (None, "")


def test_many_jobs_read_the_lock_file_once(make):
    """The plan of a job does not grow with the number of packages."""
    lock = lock_text({"linux-64": [conda(f"package-{number}") for number in range(500)]})
    result = make("[{run: {command: ls}}]", lock=lock, resources=RESOURCES + "count: 500\n")
    first, *_, last = result.plan.jobs
    assert first.environment is not last.environment and first.environment == last.environment
    assert len(json.dumps(plan.encode(replace(result.plan, jobs=(last,))))) < 2500
    assert len(result.workspaces.environments["default"].lock.packages) == 500


def test_files_of_the_run_folder(make, tmp_path):
    own = build_wheel(tmp_path / "dist", "own")
    lock = lock_text({"linux-64": [conda("numpy"), local(f"./dist/{own.name}", "own")]})
    result = make("[{run: {command: ls}}]", lock=lock)
    folder = plan.RunFolder(tmp_path / "run")
    result.workspaces.write(folder)
    environment = folder.pixi_environment("default")
    assert plan.read_pixi_lock(environment / plan.ENVIRONMENT_FILE) == result.workspaces.environments["default"].lock
    assert (environment / own.name).read_bytes() == own.read_bytes()
    assert folder.workspace_archive.stat().st_size == result.plan.jobs[0].inputs[0].files[0].size


def test_sizes_of_wheels_are_asked_for(make, tmp_path):
    served = build_wheel(tmp_path / "site", "served")
    with HttpServer(tmp_path / "site") as server:
        url = f"{server.url}/{served.name}"
        lock = lock_text({"linux-64": [conda("numpy"), {**wheel("served"), "pypi": url}, wheel("unreachable")]})
        lock = lock.replace("https://files.example.org/unreachable", f"{server.url}/unreachable")
        result = make("[{run: {command: ls}}]", lock=lock)
        before = result.plan.jobs[0].environment.pixi
        result.workspaces.query_sizes()
    size = served.stat().st_size
    assert (before.download_bytes, before.n_unknown_sizes) == (1000, 2)
    assert result.workspaces.download_sizes == {"default": DownloadSize(1000 + size, 1)}
    planned = add_download_sizes(result.plan, result.workspaces.download_sizes)
    after = planned.jobs[0].environment.pixi
    assert (after.download_bytes, after.n_unknown_sizes, after.installed_bytes) == (1000 + size, 1, 4 * (1000 + size))
    summary = summarize_plan(planned)
    assert summary.disk_bytes > after.download_bytes + after.installed_bytes
