"""Preflight checks of inputs, the plan summary, and the limits of engines."""

import http.server
import threading
from dataclasses import dataclass
from functools import partial

import pytest

from packtrain.errors import TransferError
from packtrain.plan import Input, Job, Limits, Location, RemoteFile, Resources
from packtrain.planner import preflight
from packtrain.planner.engine_limits import check_engine_limits, clamp_memory
from packtrain.planner.plan_summary import estimate_disk_bytes, summarize_plan
from packtrain.planner.preflight import PreflightResult, add_sizes, check_input_access
from packtrain.spec.diagnostics import SourceMap
from packtrain.spec.load import load_workflow_text
from packtrain.transfer.archive.formats import can_unpack_while_downloading
from tests.support.memory_object_store import MemoryBackend

run_preflight = partial(preflight.run_preflight, retry_delays_s=(0.0, 0.0))


@dataclass(frozen=True)
class FakeEngine:
    name: str = "this machine"
    supports_containers: bool = True
    gpus: int = 4
    cpus: int = 64
    memory_mb: int = 100_000


def write_inputs(tmp_path):
    (tmp_path / "d").mkdir()
    for name, size in (("d/a", 10), ("d/b", 5), ("x.tar.gz", 100)):
        (tmp_path / name).write_bytes(b"x" * size)
    return "input: {file: {path: x.tar.gz}}\ninputs: {more: {file: {path: d}}}\n"


def test_sizes_of_local_inputs(plan_workflow, tmp_path):
    plan = plan_workflow(write_inputs(tmp_path) + "count: 3\n").plan
    result = run_preflight(plan, {})
    assert sorted((stat.size, stat.n_files, stat.is_reachable) for stat in result.input_stats.values()) == [
        (15, 2, True),
        (100, 1, True),
    ]
    assert [job.inputs[0].files[0].size for job in add_sizes(plan, result).jobs] == [100] * 3


class CountingBackend(MemoryBackend):
    def __init__(self):
        super().__init__()
        self.requested_urls = []

    def stat(self, location):
        self.requested_urls.append(location.url)
        return super().stat(location)


def test_mirrors_are_checked_once(plan_workflow):
    backend = CountingBackend()
    backend.objects["https://b.example/x"] = b"12345"
    plan = plan_workflow("count: 5\ninput: {http: {urls: ['https://a.example/x', 'https://b.example/x']}}\n").plan
    (stat,) = run_preflight(plan, {}, open_source=lambda location, reveal: backend).input_stats.values()
    assert (stat.size, stat.url) == (5, "https://b.example/x")
    assert backend.requested_urls == ["https://a.example/x", "https://b.example/x"]


class LateBackend(CountingBackend):
    """Returns 404 for the first request."""

    def stat(self, location):
        if self.requested_urls:
            self.objects[location.url] = b"12345"
        return super().stat(location)


def test_404_is_retried(plan_workflow):
    backend = LateBackend()
    plan = plan_workflow("input: {http: {url: 'https://a.example/x'}}\n").plan
    (stat,) = run_preflight(plan, {}, open_source=lambda location, reveal: backend).input_stats.values()
    assert (stat.size, len(backend.requested_urls)) == (5, 2)


@pytest.mark.parametrize(
    ("htcondor_yaml", "settings", "severity"),
    [
        ("", {}, "error"),
        ("htcondor: {use_oauth_services: osdf}\n", {}, "warning"),
        ("", {"Use_SciTokens": "true"}, "warning"),
    ],
)
def test_token_that_only_the_job_has(plan_workflow, guarded_url, htcondor_yaml, settings, severity):
    plan = plan_workflow(f"{htcondor_yaml}input: {{http: {{url: '{guarded_url}'}}}}\n").plan
    (diagnostic,) = check_input_access(plan, run_preflight(plan, {}), SourceMap("w.yaml"), settings)
    assert diagnostic.severity == severity


def test_unreachable_input(plan_workflow):
    plan = plan_workflow("input: {http: {url: 'https://a.example/x'}}\n").plan
    (stat,) = run_preflight(plan, {}, open_source=lambda location, reveal: MemoryBackend()).input_stats.values()
    assert not stat.is_reachable
    assert stat.error == "https://a.example/x does not exist"


def test_source_that_hangs(plan_workflow):
    release = threading.Event()

    class HangingBackend(MemoryBackend):
        def stat(self, location):
            release.wait()
            raise TransferError("truncated", "too late")

    plan = plan_workflow("input: {http: {url: 'https://a.example/x?secret=1'}}\n").plan
    (stat,) = run_preflight(
        plan, {}, timeout_s=0.2, open_source=lambda location, reveal: HangingBackend()
    ).input_stats.values()
    release.set()
    assert stat.error == "did not respond within 0.2 seconds"
    assert "secret" not in stat.url


class TokenHandler(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
        is_authorized = self.headers.get("Authorization") == "Bearer right"
        self.send_response(200 if is_authorized else 401)
        self.send_header("Content-Length", "1234" if is_authorized else "0")
        self.end_headers()

    do_GET = do_HEAD

    def log_message(self, *args):
        pass


@pytest.fixture
def guarded_url():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), TokenHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/x.tar"
    server.shutdown()
    server.server_close()


def test_secrets_are_sent(plan_workflow, guarded_url):
    plan = plan_workflow(f"input: {{http: {{url: '{guarded_url}', token: '${{env:T}}'}}}}\n").plan
    (authorized,) = run_preflight(plan, {"T": "right"}).input_stats.values()
    (unauthorized,) = run_preflight(plan, {"T": "wrong"}).input_stats.values()
    (missing,) = run_preflight(plan, {}).input_stats.values()
    assert authorized.size == 1234
    assert (unauthorized.is_reachable, missing.is_reachable) == (False, False)
    assert "the secret T is unknown" in missing.error


STEPS = """\
steps:
  - name: sweep
    for:
      parallel: true
      items: [a, b]
      steps: [{name: train, run: {command: python train.py, container: {image: o/a}}}]
    finally: [{name: tidy, if: -e x, run: {command: rm x}}]
"""


def test_summary_of_expected_outputs(plan_workflow):
    plan = plan_workflow(
        "expect: [{path: a, torch: true}, {path: b, json: {acc: {min: 0.5, max: 1}, loss: {}, top5: {max: 2}}},"
        " {path: c, json: {}}, {path: d, archive: true}]\n"
    ).plan
    assert summarize_plan(plan, run_preflight(plan, {})).to_data()["expect"] == (
        "a: at least 1 file, a torch file with finite values",
        "b: at least 1 file, acc ≥ 0.5 and ≤ 1, loss finite, top5 ≤ 2",
        "c: at least 1 file, valid JSON",
        "d: at least 1 file, a complete archive",
    )


def test_plan_summary(plan_workflow, tmp_path):
    text = (
        write_inputs(tmp_path)
        + "matrix: {lr: [1, 2]}\nexpect: [{path: '*.pt', minSize: 1MB, command: check}]\nlimits: {wallTime: 20h}\n"
    )
    plan = plan_workflow(text, steps=STEPS).plan
    summary = summarize_plan(plan, run_preflight(plan, {})).to_data()
    assert [(job["id"], job["point"]) for job in summary["jobs"]] == [("0", {"lr": "1"}), ("1", {"lr": "2"})]
    assert [(entry["name"], entry["size"], entry["reachable"], entry["n_jobs"]) for entry in summary["inputs"]] == [
        ("input", 100, True, 2),
        ("more", 15, True, 2),
    ]
    assert summary["resources"] == {"tasks": 1, "cpus": 2, "memory_mb": 200, "gpus": 1}
    assert summary["expect"] == ("*.pt: at least 1 file, each at least 1 MB, checked by `check`",)
    assert summary["limits"] == {"maxAttempts": "3", "grace": "30 s", "wallTime": "20 h"}
    assert summary["disk_bytes"] == 100 + 200 + 15
    (sweep,) = summary["steps"]
    assert sweep["description"] == "2 iterations in parallel"
    train, finally_group = sweep["steps"]
    assert (train["description"], train["image"]) == ("python train.py", "docker://registry-1.docker.io/o/a")
    assert finally_group["steps"][0]["description"] == "if [[ -e x ]]: rm x"


@pytest.mark.parametrize(
    ("url", "unpack", "expected_bytes", "streams"),
    [
        ("https://a.example/x.tar", "auto", 100, True),
        ("https://a.example/x.TAR.GZ", "auto", 200, True),
        ("osdf:///a/x.tbz2", "auto", 250, True),
        ("https://a.example/x.zip", "auto", 300, False),
        ("file:///a/x.tar", "auto", 200, False),
        ("https://a.example/x.tar", "never", 100, False),
        ("https://a.example/x.bin", "auto", 100, False),
    ],
)
def test_disk_estimate_of_archives(url, unpack, expected_bytes, streams):
    remote_file = RemoteFile(url.rpartition("/")[2], (Location(url),), size=100)
    source = Input("", "input", (remote_file,), unpack=unpack)
    assert (
        estimate_disk_bytes(Job("0", (), Resources(), Limits(), (), inputs=(source,)), PreflightResult())
        == expected_bytes
    )
    assert can_unpack_while_downloading(source, remote_file) is streams  # the agent decides in the same way


def test_summary_without_preflight(plan_workflow):
    summary = summarize_plan(plan_workflow("input: {http: {url: 'https://a.example/x?sig=abc'}}\n").plan)
    assert summary.inputs[0].reachable is None
    assert summary.disk_bytes is None
    assert "abc" not in str(summary.to_data())


def test_plan_within_limits(plan_workflow):
    assert check_engine_limits(plan_workflow(steps=STEPS).plan, FakeEngine()) == ()


@pytest.mark.parametrize(
    ("engine", "severity", "expected"),
    [
        (FakeEngine(cpus=1), "warning", "each job requests 2 CPUs, this machine has 1: jobs run one at a time"),
        (FakeEngine(memory_mb=150), "warning", "each job requests 200 MB of memory, this machine has 150 MB"),
        (FakeEngine(gpus=0), "error", "each job requests 1 GPU, this machine has 0; --no-gpu runs without GPUs"),
        (
            FakeEngine(supports_containers=False),
            "error",
            "Apptainer is not installed; install Apptainer, or run on the host with --no-container",
        ),
    ],
)
def test_engine_limits(plan_workflow, engine, severity, expected):
    (diagnostic,) = check_engine_limits(plan_workflow(steps=STEPS).plan, engine)
    assert diagnostic.severity == severity
    assert expected in str(diagnostic)


def test_clamp_memory(plan_workflow):
    plan = plan_workflow(steps=STEPS).plan
    assert clamp_memory(plan, FakeEngine()) == plan
    small = FakeEngine(memory_mb=100)
    assert clamp_memory(plan, small).jobs[0].resources.memory_mb <= 100
    assert not [
        diagnostic
        for diagnostic in check_engine_limits(clamp_memory(plan, small), small)
        if "memory" in diagnostic.message
    ]


def test_no_gpu_and_no_container(plan_workflow):
    plan = plan_workflow(steps=STEPS, no_gpu=True, no_container=True).plan
    assert check_engine_limits(plan, FakeEngine(gpus=0, supports_containers=False)) == ()


def test_diagnostics_have_positions(plan_workflow):
    text = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 1, gpus: 1}\nsteps: []\n"
    source_map = load_workflow_text(text, "w.yaml").workflow.source_map
    (diagnostic,) = check_engine_limits(plan_workflow(steps="steps: []\n").plan, FakeEngine(gpus=0), source_map)
    assert str(diagnostic).startswith("w.yaml:1:59: ")
