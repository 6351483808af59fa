"""The agent as a process of its own, from its zip, with real files, servers and signals."""

import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from agent_runs import AgentRun, an_input, job, sh

from packtrain import __version__
from packtrain.engines.bundle import build_agent, write_launcher
from packtrain.plan import (
    Digest,
    EnvVar,
    Expect,
    GpuNeeds,
    Input,
    Limits,
    Output,
    Plan,
    Ref,
    Resources,
    Secret,
    write_plan,
)
from testbed.origin import Fault, Origin

pytestmark = pytest.mark.slow

STAGES = ["probe", "fetch", "unpack", "steps", "check", "sync", "clean"]
TRAIN = 'cp "$DEEPSQUARE_INPUT/data.txt" "$DEEPSQUARE_OUTPUT/model.pt"'


@pytest.fixture(scope="session")
def agent(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agent")
    build_agent(folder / "agent.pyz")
    write_launcher(folder / "launch.sh")
    return folder / "agent.pyz"


@pytest.fixture
def attempt(agent, tmp_path):
    """Makes attempts; ends what a failed test left running."""
    made = []

    def make(job, **more):
        made.append(AgentRun(agent, tmp_path / f"attempt{len(made)}", job, **more))
        return made[-1]

    yield make
    for run in made:
        if run.process is not None and run.process.poll() is None:
            run.process.kill()
            run.process.communicate()


@pytest.fixture
def data(tmp_path):
    """A folder of inputs, by file:// address."""
    folder = tmp_path / "data"
    folder.mkdir()
    make_tar(folder / "data.tar.gz", {"data.txt": b"0123456789" * 100})
    return folder


def make_tar(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


# A good job


def test_a_good_job(attempt, data, tmp_path):
    target = tmp_path / "results"
    run = attempt(
        job(
            sh(TRAIN),
            inputs=(an_input(f"file://{data}/data.tar.gz"),),
            output=Output(Ref(f"file://{target}")),
            expect=(Expect("model.pt", min_bytes=1000, command='test "$(wc -c < "$PACKTRAIN_FILE")" = 1000'),),
        )
    ).run()
    assert run.process.returncode == 0, run.stderr
    assert [e.data["stage"] for e in run.events("stage.ended")] == STAGES
    assert all(e.data["failure"] is None and e.data["seconds"] >= 0 for e in run.events("stage.ended"))
    assert (target / "model.pt").read_bytes() == b"0123456789" * 100
    assert run.ended["outcome"] == "succeeded"
    assert [(o["path"], o["bytes"], len(o["sha256"])) for o in run.ended["outputs"]] == [("model.pt", 1000, 64)]
    assert run.ended["freed_bytes"] >= 2000
    assert run.sandbox_is_gone
    assert run.stderr == "packtrain: ended with exit code 0\n"


def test_a_good_job_over_http(attempt, data, tmp_path):
    (tmp_path / "sink").mkdir()
    with Origin(data, token="t0ken") as origin, Origin(tmp_path / "sink", writable=True) as sink:
        source = an_input(f"{origin.url}/data.tar.gz", token=Secret("token"))
        output = Output(Ref(f"{sink.url}/model.pt"))
        run = attempt(job(sh(TRAIN), inputs=(source,), output=output), secrets={"token": "t0ken"}).run()
        assert run.stage("fetch")["source"] == f"{origin.url}/data.tar.gz"
        assert run.stage("fetch")["bytes"] == (data / "data.tar.gz").stat().st_size
        assert run.stage("unpack")["files"] == 1
    assert run.process.returncode == 0, run.stderr
    assert (tmp_path / "sink" / "model.pt").read_bytes() == b"0123456789" * 100


def test_the_first_event(attempt):
    run = attempt(job(sh("true"))).run()
    first = run.events()[0]
    assert (first.kind, first.seq, first.job, first.run) == ("attempt.started", 1, "0", "run-1")
    assert first.data["decision"] == "d1"
    assert first.data["pid"] == run.process.pid
    assert first.data["version"] == __version__


def test_the_first_event_comes_quickly(attempt):
    """Within 0.3 s of the process' start, where the processors are not wanted by others."""
    limit = 0.3 * max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))
    assert min(_time_to_first_event(attempt(job(sh("true")))) for _ in range(3)) < limit


def _time_to_first_event(run):
    before = time.time()
    run.run()
    return run.events()[0].wall - before


def test_the_probe_tells_figures(attempt, data):
    run = attempt(job(sh("true"), inputs=(an_input(f"file://{data}/data.tar.gz"),))).run()
    probe = run.stage("probe")
    assert probe["python"].startswith(f"{sys.version_info[0]}.{sys.version_info[1]}")
    assert probe["disk_free"] > 0
    assert probe["memory_mb"] > 0
    assert probe["gpus"] == []
    assert probe["inputs"] == [{"url": f"file://{data}/data.tar.gz", "size": (data / "data.tar.gz").stat().st_size}]
    assert probe["seconds"] < 5


def test_outputs_without_a_destination_come_home(attempt, tmp_path):
    links = 'echo real > ../tmp/big; ln -s "$PWD/../tmp/big" out; ln -s out short; mkdir d; echo 1 > d/f'
    run = attempt(job(sh(f'cd "$DEEPSQUARE_OUTPUT"; {links}'), expect=(Expect("out"), Expect("d/f")))).run()
    assert run.process.returncode == 0, run.stderr
    assert (run.home.output / "out").read_text() == "real\n"
    assert (run.home.output / "short").read_text() == "real\n"
    assert (run.home.output / "d" / "f").read_text() == "1\n"
    assert run.sandbox_is_gone


def test_a_plan_alone_is_enough(agent, tmp_path):
    write_plan(Plan("r", "n", "local", (job(sh('echo 1 > "$DEEPSQUARE_OUTPUT/f"')),)), tmp_path / "plan.json")
    command = [sys.executable, "-I", "-S", agent, "plan.json"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=30)
    assert (tmp_path / "packtrain-attempt" / "output" / "f").read_text() == "1\n"
    assert not (tmp_path / "packtrain-attempt" / "sandbox").exists()


def test_through_the_launcher_with_an_empty_path(agent, tmp_path):
    write_plan(Plan("r", "n", "local", (job(sh("true")),)), tmp_path / "plan.json")
    environ = {"PATH": "", "PACKTRAIN_PYTHON": sys.executable}
    done = subprocess.run(
        ["/bin/sh", agent.parent / "launch.sh", "plan.json"], cwd=tmp_path, env=environ, capture_output=True, timeout=30
    )
    assert done.returncode == 0, done.stderr


def test_metrics_become_events(attempt):
    lines = "".join(f'echo \'{{"step": {n}, "loss": {9 - n}}}\' >> "$PACKTRAIN_METRICS"\n' for n in range(3))
    run = attempt(job(sh(lines + 'echo nonsense >> "$PACKTRAIN_METRICS"'))).run()
    assert run.process.returncode == 0, run.stderr
    assert run.events("metric")[-1].data == {"step": 2, "loss": 7}
    assert sum("metrics file" in text for text in run.notices) == 1


def test_an_empty_prefix_is_no_error(attempt, tmp_path):
    (tmp_path / "bucket").mkdir()
    source = Input("", "input", prefix=Ref(f"file://{tmp_path}/bucket"), unpack="never")
    run = attempt(job(sh("true"), inputs=(source,))).run()
    assert run.process.returncode == 0, run.stderr
    assert any("nothing below" in text for text in run.notices)


def test_a_prefix_brings_every_object(attempt, tmp_path):
    (tmp_path / "bucket" / "sub").mkdir(parents=True)
    (tmp_path / "bucket" / "a").write_text("A")
    (tmp_path / "bucket" / "sub" / "b").write_text("B")
    source = Input("x", "inputs/x", prefix=Ref(f"file://{tmp_path}/bucket"), unpack="never")
    run = attempt(job(sh('cat inputs/x/a inputs/x/sub/b > "$DEEPSQUARE_OUTPUT/both"'), inputs=(source,))).run()
    assert run.process.returncode == 0, run.stderr
    assert (run.home.output / "both").read_text() == "AB"


def test_chmod_reaches_everything(attempt, data):
    source = an_input(f"file://{data}/data.tar.gz", chmod=0o750)
    run = attempt(job(sh('stat -c %a input input/data.txt > "$DEEPSQUARE_OUTPUT/modes"'), inputs=(source,))).run()
    assert (run.home.output / "modes").read_text() == "750\n750\n", run.stderr


def test_what_is_no_archive_stays_as_it_is(attempt, tmp_path):
    (tmp_path / "labels.csv").write_text("a,b\n")
    run = attempt(job(sh("test -f input/labels.csv"), inputs=(an_input(f"file://{tmp_path}/labels.csv"),))).run()
    assert run.process.returncode == 0, run.stderr
    assert any("labels.csv" in text and "no archives" in text for text in run.notices)


def test_continuous_sync_copies_while_the_step_runs(attempt, tmp_path):
    target = tmp_path / "results"
    step = sh('cd "$DEEPSQUARE_OUTPUT"; echo 1 > early; while [ ! -e ../go ]; do sleep 0.05; done; echo 2 > late')
    run = attempt(job(step, output=Output(Ref(f"file://{target}"), continuous=True))).start()
    deadline = time.monotonic() + 25
    while not (target / "early").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (target / "early").read_text() == "1\n"
    (next(run.scratch.iterdir()) / "go").touch()
    assert run.finish() == 0, run.stderr
    assert (target / "late").read_text() == "2\n"


# Failures: each its own exit code, one sentence, a clean sandbox


def assert_failed(run, code, kind, stage, *words):
    assert run.process.returncode == code, (run.failure, run.stderr)
    assert run.ended["exit_code"] == code
    assert run.ended["outcome"] == "failed"
    assert (run.failure["kind"], run.failure["stage"]) == (kind, stage)
    for word in words:
        assert word in run.failure["detail"]
    assert "\n" not in run.failure["detail"]
    assert run.failure["detail"] in run.stderr
    assert run.sandbox_is_gone
    assert run.stage("clean")["failure"] is None


def test_a_failing_step(attempt, tmp_path):
    target = tmp_path / "results"
    step = sh('echo half > "$DEEPSQUARE_OUTPUT/model.pt"; echo "no CUDA, no cry" >&2; exit 3', name="train")
    run = attempt(job(step, output=Output(Ref(f"file://{target}")))).run()
    assert_failed(run, 10, "step_failed", "steps", "train", "3", "no CUDA, no cry")
    emitter = run.events()[0].emitter
    assert [p.relative_to(target).as_posix() for p in target.rglob("*") if p.is_file()] == [
        f".packtrain/{emitter}/model.pt"
    ]
    assert [o["path"] for o in run.ended["outputs"]] == [f".packtrain/{emitter}/model.pt"]


def test_a_missing_output(attempt):
    run = attempt(job(sh('echo 1 > "$DEEPSQUARE_OUTPUT/model.bin"'), expect=(Expect("model.pt"),))).run()
    assert_failed(run, 11, "output_missing", "check", "'model.pt' is missing", "contains model.bin")


def test_an_empty_output(attempt):
    run = attempt(job(sh('touch "$DEEPSQUARE_OUTPUT/model.pt"'), expect=(Expect("model.pt"),))).run()
    assert_failed(run, 12, "output_empty", "check", "model.pt has 0 bytes")


def test_an_output_that_fails_its_check(attempt):
    expect = Expect("model.pt", command='echo "bad magic in $PACKTRAIN_FILE" >&2; exit 4')
    run = attempt(job(sh('echo x > "$DEEPSQUARE_OUTPUT/model.pt"'), expect=(expect,))).run()
    assert_failed(run, 13, "output_wrong", "check", "model.pt", "exit code 4: bad magic in ")


def test_a_truncated_archive(attempt, data):
    whole = make_tar(data / "whole.tar.gz", {"a": os.urandom(200_000)}).read_bytes()
    (data / "short.tar.gz").write_bytes(whole[: len(whole) // 2])
    run = attempt(job(sh("true"), inputs=(an_input(f"file://{data}/short.tar.gz"),))).run()
    assert_failed(run, 32, "truncated", "unpack", "short.tar.gz")


def test_a_member_that_leaves_the_folder(attempt, data, tmp_path):
    make_tar(data / "evil.tar.gz", {"../../x": b"boo"})
    run = attempt(job(sh("true"), inputs=(an_input(f"file://{data}/evil.tar.gz"),))).run()
    assert_failed(run, 34, "archive_unsafe", "unpack", "../../x")
    assert not list(tmp_path.rglob("x"))


def test_a_wrong_digest(attempt, data):
    source = an_input(f"file://{data}/data.tar.gz", digest=Digest("sha256", "0" * 64))
    assert_failed(attempt(job(sh("true"), inputs=(source,))).run(), 33, "digest_mismatch", "fetch", "data.tar.gz")


def test_less_disk_than_needed_is_seen_before_data_moves(attempt, data):
    run = attempt(job(sh("true"), inputs=(an_input(f"file://{data}/data.tar.gz", size=10**18),))).run()
    assert_failed(run, 45, "disk_full", "probe", "needs 2000000000.000 GB")
    assert run.events("progress") == []


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("may not mount")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_disk_that_fills_while_fetching(attempt, data, small_disk):
    """From a server that does not tell the size beforehand."""
    (data / "big.bin").write_bytes(bytes(6_000_000))
    with Origin(data, faults=[Fault(no_length=True)] * 9) as origin:
        run = attempt(job(sh("true"), inputs=(an_input(f"{origin.url}/big.bin", unpack="never"),)))
        run.scratch = small_disk / "scratch"
        run.run()
    assert_failed(run, 45, "disk_full", "fetch")


def test_a_disk_that_fills_in_a_step(attempt, small_disk):
    """The journal is on it, too: what matters is still told once the sandbox is gone."""
    run = attempt(job(sh('head -c 6000000 /dev/zero > "$DEEPSQUARE_OUTPUT/big"', name="write")))
    run.home = type(run.home)(small_disk / "home")
    run.scratch = small_disk / "scratch"
    run.run()
    assert run.process.returncode in (10, 45), run.stderr
    assert run.ended["failure"]["kind"] in ("step_failed", "disk_full")
    assert run.sandbox_is_gone


def test_an_html_error_page_instead_of_data(attempt, tmp_path):
    page = Fault(page=b"<!DOCTYPE html><html><head><title>Service down for maintenance</title></head></html>")
    with Origin(tmp_path, faults=[page] * 99) as origin:
        run = attempt(job(sh("true"), inputs=(an_input(f"{origin.url}/cifar-10-python.tar.gz"),))).run()
    assert_failed(run, 31, "not_the_data", "fetch", "cifar-10-python.tar.gz", "Service down for maintenance")


def test_a_missing_token(attempt, data):
    with Origin(data, token="good-token") as origin:
        run = attempt(job(sh("true"), inputs=(an_input(f"{origin.url}/data.tar.gz"),))).run()
    assert_failed(run, 14, "token_refused", "fetch", "401", "data.tar.gz")


def test_a_missing_object(attempt, data):
    with Origin(data) as origin:
        run = attempt(job(sh("true"), inputs=(an_input(f"{origin.url}/gone.tar.gz"),))).run()
    assert_failed(run, 30, "object_missing", "fetch", "gone.tar.gz")


def test_a_download_that_ends_early(attempt, data):
    with Origin(data, faults=[None] + [Fault(truncate=50)] * 99) as origin:
        size = (data / "data.tar.gz").stat().st_size
        run = attempt(job(sh("true"), inputs=(an_input(f"{origin.url}/data.tar.gz", size=size),))).run()
    assert_failed(run, 32, "truncated", "fetch", "50")


def test_a_service_that_restarts_is_news_and_no_verdict(attempt, data):
    with Origin(data, faults=[Fault(status=404), Fault(status=503), Fault(status=404)]) as origin:
        run = attempt(job(sh("true"), inputs=(an_input(f"{origin.url}/data.tar.gz"),), patience_s=20)).run()
    assert run.process.returncode == 0, run.stderr
    assert run.stage("probe")["inputs"][0]["problem"] == "object_missing"
    assert any("data.tar.gz" in text for text in run.notices)
    assert run.stage("fetch")["retries"] > 0


def test_an_unknown_host(attempt):
    run = attempt(job(sh("true"), inputs=(an_input("http://no-such-host.invalid/cifar-10-python.tar.gz"),))).run()
    assert_failed(run, 46, "host_unknown", "fetch", "no-such-host.invalid")
    assert any("no-such-host.invalid" in text for text in run.notices)


def test_no_gpu_where_one_is_needed(attempt, tmp_path):
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '0, GPU-1, Tesla K40, 11441, 460.32.03, 3.5'\n")
    tool.chmod(0o755)
    needs = Resources(mem_per_cpu_mb=16, gpus=1, gpu=GpuNeeds(min_capability="7.0"))
    environ = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    run = attempt(job(sh("true"), resources=needs), environ=environ).run()
    assert_failed(run, 48, "gpu_unusable", "probe", "Tesla K40", "is 3.5, needed is 7.0")
    assert run.stage("probe")["gpus"][0]["memory_mb"] == 11441


def test_more_memory_than_there_is(attempt):
    run = attempt(job(sh("true"), resources=Resources(mem_per_cpu_mb=10**9))).run()
    assert_failed(run, 49, "memory_short", "probe", "needs 1000000000 MB")


def test_a_missing_secret(attempt):
    run = attempt(job(sh("true"), env=(EnvVar("TOKEN", Secret("token")),))).run()
    assert_failed(run, 15, "secret_missing", "steps", "'token'")


@pytest.mark.parametrize("wish", [{"mode": "stream"}, {"delivery": "plugin"}, {"delivery": "native"}])
def test_what_is_not_there_yet(attempt, data, wish):
    run = attempt(job(sh("true"), inputs=(an_input(f"file://{data}/data.tar.gz", **wish),))).run()
    assert_failed(run, 18, "unsupported", "fetch", next(iter(wish.values())), "cannot do yet")


def test_the_wall_limit(attempt):
    run = attempt(job(sh("sleep 60"), limits=Limits(wall_time_s=1.0, grace_s=2))).run()
    assert_failed(run, 16, "wall_time", "steps", "`limits.wallTime` of 1 s")


def test_a_destination_that_refuses(attempt, tmp_path):
    """What could not be delivered stays with the attempt."""
    (tmp_path / "file").write_text("not a folder")
    step = sh('echo precious > "$DEEPSQUARE_OUTPUT/model.pt"')
    run = attempt(job(step, output=Output(Ref(f"file://{tmp_path}/file/below")))).run()
    assert_failed(run, 38, "sink_failed", "sync", f"{tmp_path}/file/below")
    assert [p.read_text() for p in run.home.output.rglob("model.pt")] == ["precious\n"]


def test_of_two_failures_the_first_is_reported(attempt, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    step = sh('echo half > "$DEEPSQUARE_OUTPUT/model.pt"; exit 3')
    run = attempt(job(step, output=Output(Ref(f"file://{tmp_path}/file/below")))).run()
    assert_failed(run, 10, "step_failed", "steps")
    assert run.stage("sync")["failure"] is not None
    assert run.stage("sync")["failure"]["detail"] in run.notices


def test_a_plan_that_cannot_be_read(attempt):
    run = attempt(job(sh("true")))
    (run.folder / "plan.json").write_text("{")
    run.run()
    assert run.process.returncode == 71
    assert "plan" in run.stderr


def test_permissions_do_not_keep_the_sandbox(attempt):
    run = attempt(job(sh("mkdir -p a/b; touch a/b/c; chmod 0 a/b a"))).run()
    assert run.process.returncode == 0, run.stderr
    assert run.sandbox_is_gone


# Leaving


def terminated(run, stage, grace=0.0):
    run.process.send_signal(signal.SIGTERM)
    started = time.monotonic()
    code = run.finish()
    assert time.monotonic() - started < 5 + grace
    assert_failed(run, 60, "terminated", stage, "SIGTERM")
    assert code == 60
    return run


@pytest.fixture
def silent():
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_term_while_probing(attempt, silent):
    run = attempt(job(sh("true"), inputs=(an_input(f"{silent}/x"),), patience_s=60)).start()
    run.await_event("stage.started", stage="probe")
    terminated(run, "probe")


def test_term_while_fetching(attempt, silent):
    run = attempt(job(sh("true"), inputs=(an_input(f"{silent}/x"),), patience_s=60)).start()
    run.await_event("stage.started", stage="fetch")
    terminated(run, "fetch")


@pytest.fixture(scope="session")
def many_files(tmp_path_factory):
    return make_tar(tmp_path_factory.mktemp("many") / "many.tar.gz", {f"d/{n}": b"" for n in range(40_000)})


def test_term_while_unpacking(attempt, many_files):
    run = attempt(job(sh("true"), inputs=(an_input(f"file://{many_files}"),))).start()
    run.await_event("stage.started", stage="unpack")
    terminated(run, "unpack")


def test_term_while_a_step_runs(attempt, tmp_path):
    target = tmp_path / "results"
    step = sh('echo partial > "$DEEPSQUARE_OUTPUT/log"; touch started; sleep 60')
    run = attempt(job(step, output=Output(Ref(f"file://{target}")))).start()
    run.await_file("started")
    terminated(run, "steps")
    assert [p.read_text() for p in target.rglob("log")] == ["partial\n"]
    assert not (target / "log").exists()


def test_term_while_checking(attempt):
    expect = Expect("f", command="touch ../judging; sleep 60")
    run = attempt(job(sh('echo 1 > "$DEEPSQUARE_OUTPUT/f"'), expect=(expect,))).start()
    run.await_file("judging")
    terminated(run, "check")


def test_term_while_syncing(attempt, silent):
    step = sh('echo 1 > "$DEEPSQUARE_OUTPUT/f"')
    run = attempt(job(step, output=Output(Ref(f"{silent}/f")), limits=Limits(grace_s=1), patience_s=60)).start()
    run.await_event("stage.started", stage="sync")
    terminated(run, "sync", grace=1)
    assert [p.read_text() for p in run.home.output.rglob("f")] == ["1\n"]


def test_term_while_cleaning_changes_nothing(attempt):
    run = attempt(job(sh("mkdir many; cd many; seq 1 20000 | xargs touch"))).start()
    run.await_event("stage.started", stage="clean")
    run.process.send_signal(signal.SIGTERM)
    assert run.finish() == 0, run.stderr
    assert run.sandbox_is_gone


def test_two_agents_with_one_claim(attempt):
    first = attempt(job(sh("touch started; while [ ! -e go ]; do sleep 0.05; done"))).start()
    first.await_file("started")
    before = {p: p.read_bytes() for p in first.home.root.rglob("*") if p.is_file()}
    second = attempt(job(sh("true")))
    second.home = first.home
    second.run()
    assert second.process.returncode == 72
    assert "already started" in second.stderr
    assert {p: p.read_bytes() for p in first.home.root.rglob("*") if p.is_file()} == before
    (next(first.scratch.iterdir()) / "go").touch()
    assert first.finish() == 0
    assert second.run().process.returncode == 72, "a claim is for ever"


# Secrets


def test_no_secret_is_written_or_shown(attempt, data):
    token = "s3cr3t-T0ken_with.signs~"
    step = sh(
        'echo "the token is $TOKEN"; echo "$TOKEN" >&2; printf %s "$TOKEN" | base64; touch started; '
        'while [ ! -e go ]; do sleep 0.05; done; echo "{\\"note\\": \\"$TOKEN\\"}" >> "$PACKTRAIN_METRICS"; '
        'echo "$TOKEN" > "$DEEPSQUARE_OUTPUT/../tmp/x"; echo "bye $TOKEN" >&2; exit 5'
    )
    with Origin(data, token=token) as origin:
        inputs = (an_input(f"{origin.url}/data.tar.gz", token=Secret("token")),)
        plan = job(step, inputs=inputs, env=(EnvVar("TOKEN", Secret("token")),))
        run = attempt(plan, secrets={"token": token + "\n"}).start()
        run.await_file("started")
        shown = b"".join(_command_lines())
        (next(run.scratch.iterdir()) / "go").touch()
        assert run.finish() == 10, run.stderr
        assert f"Bearer {token}" in {seen.headers.get("authorization") for seen in origin.seen}
    written = b"".join(p.read_bytes() for p in run.home.root.rglob("*") if p.is_file())
    assert b"the token is ***" in written
    assert b"agent.pyz" in shown
    for place in (written, shown, run.stderr.encode()):
        assert b"s3cr3t" not in place


def _command_lines():
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield (process / "cmdline").read_bytes()
