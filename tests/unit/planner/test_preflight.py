"""Sizes, the explanation of a plan, and whether it fits."""

import http.server
import threading
import time
from dataclasses import dataclass

import pytest

from packtrain.errors import TransferError
from packtrain.plan import Input, Job, Limits, Location, RemoteFile, Resources
from packtrain.planner import preflight as survey_module
from packtrain.planner.engine_limits import check_engine_limits, clamp_memory
from packtrain.planner.plan_summary import estimate_disk_bytes, summarize_plan
from packtrain.planner.preflight import PreflightResult, add_sizes, check_input_access, run_preflight
from packtrain.spec.diagnostics import SourceMap
from packtrain.spec.load import load_workflow_text
from packtrain.transfer.archive.detection import can_unpack_while_downloading
from tests.support.memory_object_store import MemoryBackend


@dataclass(frozen=True)
class Machine:
    name: str = "this machine"
    supports_containers: bool = True
    gpus: int = 4
    cpus: int = 64
    memory_mb: int = 100_000


def files(tmp_path):
    (tmp_path / "d").mkdir()
    for name, size in (("d/a", 10), ("d/b", 5), ("x.tar.gz", 100)):
        (tmp_path / name).write_bytes(b"x" * size)
    return "input: {file: {path: x.tar.gz}}\ninputs: {more: {file: {path: d}}}\n"


def test_local_inputs_have_sizes(planned, tmp_path):
    made = planned(files(tmp_path) + "count: 3\n").plan
    found = run_preflight(made, {})
    assert sorted((f.size, f.n_files, f.is_reachable) for f in found.input_stats.values()) == [
        (15, 2, True),
        (100, 1, True),
    ]
    assert [job.inputs[0].files[0].size for job in add_sizes(made, found).jobs] == [100] * 3


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(survey_module, "_RETRY_DELAYS_S", (0.0, 0.0))


class Counting(MemoryBackend):
    def __init__(self):
        super().__init__()
        self.asked = []

    def stat(self, ref):
        self.asked.append(ref.url)
        return super().stat(ref)


def test_each_input_is_asked_once_and_the_first_mirror_that_answers_counts(planned):
    store = Counting()
    store.objects["https://b.example/x"] = b"12345"
    made = planned("count: 5\ninput: {http: {urls: ['https://a.example/x', 'https://b.example/x']}}\n").plan
    (finding,) = run_preflight(made, {}, open_source=lambda ref, reveal: store).input_stats.values()
    assert (finding.size, finding.url) == (5, "https://b.example/x")
    assert store.asked == ["https://a.example/x", "https://b.example/x"]


class LateStore(Counting):
    """Says once that there is nothing."""

    def stat(self, ref):
        if self.asked:
            self.objects[ref.url] = b"12345"
        return super().stat(ref)


def test_one_404_is_not_believed(planned):
    store = LateStore()
    made = planned("input: {http: {url: 'https://a.example/x'}}\n").plan
    (finding,) = run_preflight(made, {}, open_source=lambda ref, reveal: store).input_stats.values()
    assert (finding.size, len(store.asked)) == (5, 2)


@pytest.mark.parametrize(
    ("lines", "settings", "severity"),
    [
        ("", {}, "error"),
        ("htcondor: {use_oauth_services: osdf}\n", {}, "warning"),
        ("", {"Use_SciTokens": "true"}, "warning"),
    ],
)
def test_a_token_that_only_the_job_has_is_no_reason_to_refuse(planned, guarded, lines, settings, severity):
    made = planned(f"{lines}input: {{http: {{url: '{guarded}'}}}}\n").plan
    (problem,) = check_input_access(made, run_preflight(made, {}), SourceMap("w.yaml"), settings)
    assert problem.severity == severity


def test_what_cannot_be_reached_says_why(planned):
    made = planned("input: {http: {url: 'https://a.example/x'}}\n").plan
    (finding,) = run_preflight(made, {}, open_source=lambda ref, reveal: MemoryBackend()).input_stats.values()
    assert not finding.is_reachable
    assert finding.error == "https://a.example/x does not exist"


def test_a_source_that_hangs_is_not_waited_for(planned):
    release = threading.Event()

    class Hanging(MemoryBackend):
        def stat(self, ref):
            release.wait(30)
            raise TransferError("truncated", "too late")

    made = planned("input: {http: {url: 'https://a.example/x?secret=1'}}\n").plan
    begin = time.monotonic()
    (finding,) = run_preflight(made, {}, timeout_s=0.2, open_source=lambda ref, reveal: Hanging()).input_stats.values()
    release.set()
    assert time.monotonic() - begin < 5
    assert finding.error == "did not respond within 0.2 seconds"
    assert "secret" not in finding.url


class Guarded(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
        good = self.headers.get("Authorization") == "Bearer right"
        self.send_response(200 if good else 401)
        self.send_header("Content-Length", "1234" if good else "0")
        self.end_headers()

    do_GET = do_HEAD

    def log_message(self, *args):
        pass


@pytest.fixture
def guarded():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Guarded)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/x.tar"
    server.shutdown()
    server.server_close()


def test_secrets_are_used_for_asking(planned, guarded):
    made = planned(f"input: {{http: {{url: '{guarded}', token: '${{env:T}}'}}}}\n").plan
    (right,) = run_preflight(made, {"T": "right"}).input_stats.values()
    (wrong,) = run_preflight(made, {"T": "wrong"}).input_stats.values()
    (missing,) = run_preflight(made, {}).input_stats.values()
    assert right.size == 1234
    assert (wrong.is_reachable, missing.is_reachable) == (False, False)
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


def test_an_explanation_of_checks(planned):
    made = planned(
        "expect: [{path: a, torch: true}, {path: b, json: {acc: {min: 0.5, max: 1}, loss: {}, top5: {max: 2}}},"
        " {path: c, json: {}}, {path: d, archive: true}]\n"
    ).plan
    assert summarize_plan(made, run_preflight(made, {})).to_data()["expect"] == (
        "a: at least 1 file, a torch file with finite values",
        "b: at least 1 file, acc ≥ 0.5 and ≤ 1, loss finite, top5 ≤ 2",
        "c: at least 1 file, valid JSON",
        "d: at least 1 file, a complete archive",
    )


def test_an_explanation_shows_what_a_person_wants_to_know(planned, tmp_path):
    text = (
        files(tmp_path)
        + "matrix: {lr: [1, 2]}\nexpect: [{path: '*.pt', minSize: 1MB, command: check}]\nlimits: {wallTime: 20h}\n"
    )
    made = planned(text, steps=STEPS).plan
    shown = summarize_plan(made, run_preflight(made, {})).to_data()
    assert [(job["id"], job["point"]) for job in shown["jobs"]] == [("0", {"lr": "1"}), ("1", {"lr": "2"})]
    assert [(i["name"], i["size"], i["reachable"], i["n_jobs"]) for i in shown["inputs"]] == [
        ("input", 100, True, 2),
        ("more", 15, True, 2),
    ]
    assert shown["resources"] == {"tasks": 1, "cpus": 2, "memory_mb": 200, "gpus": 1}
    assert shown["expect"] == ("*.pt: at least 1 file, each at least 1.0 MB, checked by `check`",)
    assert shown["limits"] == {"maxAttempts": "3", "grace": "30s", "wallTime": "20h"}
    assert shown["disk_bytes"] == 100 + 200 + 15
    (sweep,) = shown["steps"]
    assert sweep["description"] == "2 iterations in parallel"
    train, last = sweep["steps"]
    assert (train["description"], train["image"]) == ("python train.py", "docker://registry-1.docker.io/o/a")
    assert last["steps"][0]["description"] == "if [[ -e x ]]: rm x"


@pytest.mark.parametrize(
    ("url", "unpack", "need", "streams"),
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
def test_an_archive_that_is_unpacked_on_its_way_takes_no_disk_itself(url, unpack, need, streams):
    item = RemoteFile(url.rpartition("/")[2], (Location(url),), size=100)
    source = Input("", "input", (item,), unpack=unpack)
    assert estimate_disk_bytes(Job("0", (), Resources(), Limits(), (), inputs=(source,)), PreflightResult()) == need
    assert can_unpack_while_downloading(source, item) is streams  # so the agent does it


def test_without_a_survey_nothing_is_claimed(planned):
    shown = summarize_plan(planned("input: {http: {url: 'https://a.example/x?sig=abc'}}\n").plan)
    assert shown.inputs[0].reachable is None
    assert shown.disk_bytes is None
    assert "abc" not in str(shown.to_data())


def test_a_plan_that_fits_has_no_problems(planned):
    assert check_engine_limits(planned(steps=STEPS).plan, Machine()) == ()


@pytest.mark.parametrize(
    ("machine", "severity", "says"),
    [
        (Machine(cpus=1), "warning", "each job requests 2 CPUs, this machine has 1: jobs run one at a time"),
        (Machine(memory_mb=150), "warning", "each job requests 200 MB of memory, this machine has 150 MB"),
        (Machine(gpus=0), "error", "each job requests 1 GPUs, this machine has 0; --no-gpu runs without GPUs"),
        (
            Machine(supports_containers=False),
            "error",
            "Apptainer is not installed; install Apptainer, or run on the host with --no-container",
        ),
    ],
)
def test_what_a_machine_does_not_have(planned, machine, severity, says):
    (problem,) = check_engine_limits(planned(steps=STEPS).plan, machine)
    assert problem.severity == severity
    assert says in str(problem)


def test_a_job_gets_no_more_memory_than_there_is(planned):
    plan = planned(steps=STEPS).plan
    assert clamp_memory(plan, Machine()) == plan
    small = Machine(memory_mb=100)
    assert clamp_memory(plan, small).jobs[0].resources.memory_mb <= 100
    assert not [p for p in check_engine_limits(clamp_memory(plan, small), small) if "memory" in p.message]


def test_the_switches_make_it_fit(planned):
    made = planned(steps=STEPS, no_gpu=True, no_container=True).plan
    assert check_engine_limits(made, Machine(gpus=0, supports_containers=False)) == ()


def test_problems_have_the_workflows_lines(planned):
    text = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 1, gpus: 1}\nsteps: []\n"
    origin = load_workflow_text(text, "w.yaml").workflow.source_map
    (problem,) = check_engine_limits(planned(steps="steps: []\n").plan, Machine(gpus=0), origin)
    assert str(problem).startswith("w.yaml:1:59: ")
