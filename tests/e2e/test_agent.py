"""Tests of the agent as a process, run from its zip, with real files, servers and signals."""

import contextlib
import hashlib
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from packtrain import __version__
from packtrain.plan import (
    Digest,
    EnvVar,
    ExpectedOutput,
    Input,
    Limits,
    Location,
    Output,
    Plan,
    S3Access,
    Secret,
    write_plan,
)
from testbed.http_server import HttpServer
from tests.support.agent_runs import assert_failed, make_input, make_job, make_step, make_tar
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

STAGES = ["probe", "fetch", "unpack", "steps", "check", "sync", "clean"]
TRAIN = 'cp "$DEEPSQUARE_INPUT/data.txt" "$DEEPSQUARE_OUTPUT/model.pt"'


# successful jobs


def test_job_succeeds(attempt, data, tmp_path):
    target = tmp_path / "results"
    run = attempt(
        make_job(
            make_step(TRAIN),
            inputs=(make_input(f"file://{data}/data.tar.gz"),),
            output=Output(Location(f"file://{target}")),
            expect=(ExpectedOutput("model.pt", min_bytes=1000, command='test "$(wc -c < "$PACKTRAIN_FILE")" = 1000'),),
        )
    ).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert [e.data["stage"] for e in run.events("stage.ended")] == STAGES
    assert all(e.data["failure"] is None for e in run.events("stage.ended"))
    assert sum(e.data["seconds"] for e in run.events("stage.ended")) <= run.end_data["seconds"]
    assert (target / run.staged_name("model.pt")).read_bytes() == b"0123456789" * 100
    assert run.end_data["outcome"] == "succeeded"
    assert [(o["path"], o["bytes"], len(o["sha256"])) for o in run.end_data["outputs"]] == [("model.pt", 1000, 64)]
    assert run.end_data["freed_bytes"] >= 2000
    assert run.is_sandbox_removed
    assert run.stderr == "packtrain: ended with exit code 0\n"


def test_job_succeeds_over_http(attempt, data, tmp_path):
    with HttpServer(data, token="t0ken") as origin:
        job_input = make_input(f"{origin.url}/data.tar.gz", token=Secret("token"))
        output = Output(Location("https://the.supervisor.uploads.it/model.pt"))
        run = attempt(
            make_job(make_step(TRAIN), inputs=(job_input,), output=output), secrets={"token": "t0ken"}
        ).start_and_wait()
        assert run.stage_data("fetch")["source"] == f"{origin.url}/data.tar.gz"
        assert run.stage_data("fetch")["bytes"] == (data / "data.tar.gz").stat().st_size
        assert run.stage_data("unpack")["files"] == 1
    assert run.process.returncode == 0, run.stderr
    assert (run.attempt_folder.output / run.staged_name("model.pt")).read_bytes() == b"0123456789" * 100


def test_archive_is_unpacked_while_downloading(attempt, data):
    with HttpServer(data) as origin:
        job_input = make_input(f"{origin.url}/data.tar.gz")
        run = attempt(
            make_job(make_step('ls -A input > "$DEEPSQUARE_OUTPUT/list"'), inputs=(job_input,))
        ).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert run.stage_data("fetch")["unpacked_files"] == run.stage_data("unpack")["files"] == 1
    assert run.stage_data("fetch")["unpacked_bytes"] == run.stage_data("unpack")["bytes"] == 1000
    assert (run.attempt_folder.output / "list").read_text() == "data.txt\n"


def test_second_run_uses_download_cache(attempt, data, tmp_path):
    options = ("--cache", tmp_path / "cache", "--cache-limit", "100000")
    with HttpServer(data) as origin:
        for _ in range(2):
            run = attempt(
                make_job(make_step(TRAIN), inputs=(make_input(f"{origin.url}/data.tar.gz"),)), options=options
            ).start_and_wait()
            assert run.process.returncode == 0, run.stderr
        assert run.stage_data("fetch")["source"] == f"the download cache {tmp_path / 'cache'}"
    assert (run.attempt_folder.output / "model.pt").read_bytes() == b"0123456789" * 100


def test_first_event(attempt):
    run = attempt(make_job(make_step("true"))).start_and_wait()
    first = run.events()[0]
    assert (first.kind, first.seq, first.job, first.run) == ("agent.started", 1, "0", "run-1")
    assert first.data["attempt"] == "d1"
    assert first.data["pid"] == run.process.pid
    assert first.data["version"] == __version__


def test_probe_reports_figures(attempt, data):
    run = attempt(make_job(make_step("true"), inputs=(make_input(f"file://{data}/data.tar.gz"),))).start_and_wait()
    probe = run.stage_data("probe")
    assert probe["python"].startswith(f"{sys.version_info[0]}.{sys.version_info[1]}")
    assert probe["free_disk_bytes"] > 0
    assert probe["memory_mb"] > 0
    assert probe["gpus"] == []
    assert probe["inputs"] == [{"url": f"file://{data}/data.tar.gz", "size": (data / "data.tar.gz").stat().st_size}]


def test_outputs_without_destination(attempt, tmp_path):
    links = 'echo real > ../tmp/big; ln -s "$PWD/../tmp/big" out; ln -s out short; mkdir d; echo 1 > d/f'
    run = attempt(
        make_job(
            make_step(f'cd "$DEEPSQUARE_OUTPUT"; {links}'),
            expect=(ExpectedOutput("out"), ExpectedOutput("d/f")),
        )
    ).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert (run.attempt_folder.output / "out").read_text() == "real\n"
    assert (run.attempt_folder.output / "short").read_text() == "real\n"
    assert (run.attempt_folder.output / "d" / "f").read_text() == "1\n"
    assert run.is_sandbox_removed


def test_default_options(agent, tmp_path):
    write_plan(
        Plan("r", "n", "local", (make_job(make_step('echo 1 > "$DEEPSQUARE_OUTPUT/f"')),)), tmp_path / "plan.json"
    )
    command = [sys.executable, "-I", "-S", agent, "plan.json"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=30)
    assert (tmp_path / "packtrain-attempt" / "output" / "f").read_text() == "1\n"
    assert not (tmp_path / "packtrain-attempt" / "sandbox").exists()


def test_launch_script_with_empty_path(agent, tmp_path):
    write_plan(Plan("r", "n", "local", (make_job(make_step("true")),)), tmp_path / "plan.json")
    environ = {"PATH": "", "PACKTRAIN_PYTHON": sys.executable}
    process = subprocess.run(
        ["/bin/sh", agent.parent / "launch.sh", "plan.json"], cwd=tmp_path, env=environ, capture_output=True, timeout=30
    )
    assert process.returncode == 0, process.stderr


def test_metrics_become_events(attempt):
    lines = "".join(f'echo \'{{"step": {n}, "loss": {9 - n}}}\' >> "$PACKTRAIN_METRICS"\n' for n in range(3))
    run = attempt(make_job(make_step(lines + 'echo nonsense >> "$PACKTRAIN_METRICS"'))).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert run.events("metric")[-1].data == {"step": 2, "loss": 7}
    assert sum("metrics file" in text for text in run.notices) == 1


def test_empty_prefix_is_a_notice(attempt, tmp_path):
    (tmp_path / "bucket").mkdir()
    job_input = Input("", "input", prefix=Location(f"file://{tmp_path}/bucket"), unpack="never")
    run = attempt(make_job(make_step("true"), inputs=(job_input,))).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert any("no files below" in text for text in run.notices)


def test_prefix_fetches_every_object(attempt, tmp_path):
    (tmp_path / "bucket" / "sub").mkdir(parents=True)
    (tmp_path / "bucket" / "a").write_text("A")
    (tmp_path / "bucket" / "sub" / "b").write_text("B")
    job_input = Input("x", "inputs/x", prefix=Location(f"file://{tmp_path}/bucket"), unpack="never")
    run = attempt(
        make_job(make_step('cat inputs/x/a inputs/x/sub/b > "$DEEPSQUARE_OUTPUT/both"'), inputs=(job_input,))
    ).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert (run.attempt_folder.output / "both").read_text() == "AB"


def test_chmod_is_recursive(attempt, data):
    job_input = make_input(f"file://{data}/data.tar.gz", chmod=0o750)
    run = attempt(
        make_job(make_step('stat -c %a input input/data.txt > "$DEEPSQUARE_OUTPUT/modes"'), inputs=(job_input,))
    ).start_and_wait()
    assert (run.attempt_folder.output / "modes").read_text() == "750\n750\n", run.stderr


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("labels.csv", b"a,b\n", []),
        ("data.tar.gz", b"\x00\x01\x02", ["is not an archive, despite its name; not unpacked"]),
    ],
)
def test_other_files_are_not_unpacked(attempt, tmp_path, name, data, expected):
    """A file with the name of an archive causes a notice; without a matching digest it would fail."""
    (tmp_path / name).write_bytes(data)
    job_input = make_input(f"file://{tmp_path}/{name}", digest=Digest("sha256", hashlib.sha256(data).hexdigest()))
    run = attempt(make_job(make_step(f"test -f input/{name}"), inputs=(job_input,))).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert [text for text in run.notices if "archive" in text] == [f"{name} in input {problem}" for problem in expected]


def test_many_outputs_are_listed_in_a_file(attempt):
    """The last event has no room for them, and the engine must know whether it retrieved all."""
    run = attempt(
        make_job(make_step('cd "$PACKTRAIN_OUTPUT"; for n in $(seq 1500); do echo $n > $n; done'))
    ).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert (len(run.end_data["outputs"]), run.end_data["n_outputs"]) == (1000, 1500)
    listed = run.attempt_folder.output_listing(run.events()[0].emitter).read_text().splitlines()
    assert {json.loads(line)["path"] for line in listed} == {str(n) for n in range(1, 1501)}


def test_symlinked_outputs(attempt):
    links = "ln -s ../beside model; ln -s nowhere broken; ln -s sub latest; touch .half.tmp-1"
    run = attempt(
        make_job(make_step(f'echo 1 > beside; cd "$PACKTRAIN_OUTPUT"; mkdir sub; echo 2 > sub/x; {links}'))
    ).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert {path: (run.attempt_folder.output / path).read_text() for path in ("model", "sub/x", "latest/x")} == {
        "model": "1\n",
        "sub/x": "2\n",
        "latest/x": "2\n",
    }
    assert sorted(entry["path"] for entry in run.end_data["outputs"]) == ["latest/x", "model", "sub/x"]
    assert "the output broken is left out: it is a link to nowhere, which does not exist" in run.notices


def test_continuous_sync(attempt, tmp_path):
    target = tmp_path / "results"
    step = make_step(
        'cd "$DEEPSQUARE_OUTPUT"; echo 1 > early; while [ ! -e ../go ]; do sleep 0.05; done; echo 2 > late'
    )
    run = attempt(make_job(step, output=Output(Location(f"file://{target}"), continuous_sync=True))).start()
    run.wait_for_event("stage.started", stage="steps")
    wait_until((target / run.staged_name("early")).exists)
    assert (target / run.staged_name("early")).read_text() == "1\n"
    (next(run.scratch.iterdir()) / "go").touch()
    assert run.wait() == 0, run.stderr
    assert (target / run.staged_name("late")).read_text() == "2\n"
    assert [path.name for path in target.iterdir()] == [".packtrain"], "results appear by acceptance only"


# SIGTERM in every stage


def terminate_and_check(run, stage):
    run.process.send_signal(signal.SIGTERM)
    code = run.wait()
    assert_failed(run, 60, "terminated", stage, "SIGTERM")
    assert code == 60
    return run


@pytest.fixture
def silent_server():
    """Start a server that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_term_during_probe(attempt, silent_server):
    run = attempt(make_job(make_step("true"), inputs=(make_input(f"{silent_server}/x"),), retry_timeout_s=60)).start()
    run.wait_for_event("stage.started", stage="probe")
    terminate_and_check(run, "probe")


def test_term_during_fetch(attempt, silent_server):
    run = attempt(make_job(make_step("true"), inputs=(make_input(f"{silent_server}/x"),), retry_timeout_s=60)).start()
    run.wait_for_event("stage.started", stage="fetch")
    terminate_and_check(run, "fetch")


@pytest.fixture(scope="session")
def many_files(tmp_path_factory):
    return make_tar(tmp_path_factory.mktemp("many") / "many.tar.gz", {f"d/{n}": b"" for n in range(40_000)})


def test_term_during_unpack(attempt, many_files):
    run = attempt(make_job(make_step("true"), inputs=(make_input(f"file://{many_files}"),))).start()
    run.wait_for_event("stage.started", stage="unpack")
    terminate_and_check(run, "unpack")


def test_term_during_step(attempt, tmp_path):
    target = tmp_path / "results"
    step = make_step('echo partial > "$DEEPSQUARE_OUTPUT/log"; touch started; sleep 60')
    run = attempt(make_job(step, output=Output(Location(f"file://{target}")))).start()
    run.wait_for_file("started")
    terminate_and_check(run, "steps")
    assert [p.read_text() for p in target.rglob("log")] == ["partial\n"]
    assert not (target / "log").exists()


def test_term_during_check(attempt):
    expected_output = ExpectedOutput("f", command="touch ../checking; sleep 60")
    run = attempt(make_job(make_step('echo 1 > "$DEEPSQUARE_OUTPUT/f"'), expect=(expected_output,))).start()
    run.wait_for_file("checking")
    terminate_and_check(run, "check")


def test_term_during_sync(attempt, silent_server):
    step = make_step('echo 1 > "$DEEPSQUARE_OUTPUT/f"')
    output = Output(Location("s3://bucket/f", s3=S3Access("r", silent_server)))
    run = attempt(make_job(step, output=output, limits=Limits(grace_s=1), retry_timeout_s=60)).start()
    run.wait_for_event("stage.started", stage="sync")
    terminate_and_check(run, "sync")
    assert [p.read_text() for p in run.attempt_folder.output.rglob("f")] == ["1\n"]


def test_term_during_clean_is_ignored(attempt):
    run = attempt(make_job(make_step("mkdir many; cd many; seq 1 20000 | xargs touch"))).start()
    run.wait_for_event("stage.started", stage="clean")
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 0, run.stderr
    assert run.is_sandbox_removed


def test_second_agent_is_rejected(attempt):
    first = attempt(make_job(make_step("touch started; while [ ! -e go ]; do sleep 0.05; done"))).start()
    first.wait_for_file("started")
    before = {p: p.read_bytes() for p in first.attempt_folder.root.rglob("*") if p.is_file()}
    second = attempt(make_job(make_step("true")))
    second.attempt_folder = first.attempt_folder
    second.start_and_wait()
    assert second.process.returncode == 72
    assert "already started" in second.stderr
    assert {p: p.read_bytes() for p in first.attempt_folder.root.rglob("*") if p.is_file()} == before
    (next(first.scratch.iterdir()) / "go").touch()
    assert first.wait() == 0
    assert second.start_and_wait().process.returncode == 72, "the claim remains after the holder ended"


# secrets


def test_no_secret_is_written(attempt, data):
    token = "s3cr3t-T0ken_with.signs~"
    step = make_step(
        'echo "the token is $TOKEN"; echo "$TOKEN" >&2; printf %s "$TOKEN" | base64; touch started; '
        'while [ ! -e go ]; do sleep 0.05; done; echo "{\\"note\\": \\"$TOKEN\\"}" >> "$PACKTRAIN_METRICS"; '
        'echo "$TOKEN" > "$DEEPSQUARE_OUTPUT/../tmp/x"; echo "bye $TOKEN" >&2; exit 5'
    )
    with HttpServer(data, token=token) as origin:
        inputs = (make_input(f"{origin.url}/data.tar.gz", token=Secret("token")),)
        job = make_job(step, inputs=inputs, env=(EnvVar("TOKEN", Secret("token")),))
        run = attempt(job, secrets={"token": token + "\n"}).start()
        run.wait_for_file("started")
        command_lines = b"".join(_command_lines())
        (next(run.scratch.iterdir()) / "go").touch()
        assert run.wait() == 10, run.stderr
        assert f"Bearer {token}" in {request.headers.get("authorization") for request in origin.requests}
    written = b"".join(p.read_bytes() for p in run.attempt_folder.root.rglob("*") if p.is_file())
    assert b"the token is ***" in written
    assert b"agent.pyz" in command_lines
    for text in (written, command_lines, run.stderr.encode()):
        assert b"s3cr3t" not in text


def _command_lines():
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield (process / "cmdline").read_bytes()
