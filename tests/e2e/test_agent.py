"""The agent as a process of its own, from its zip, with real files, servers and signals."""

import contextlib
import hashlib
import json
import signal
import socket
import subprocess
import sys
import time
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
    Secret,
    write_plan,
)
from testbed.http_server import HttpServer
from tests.support.agent_runs import assert_failed, make_input, make_job, make_step, make_tar

pytestmark = pytest.mark.slow

STAGES = ["probe", "fetch", "unpack", "steps", "check", "sync", "clean"]
TRAIN = 'cp "$DEEPSQUARE_INPUT/data.txt" "$DEEPSQUARE_OUTPUT/model.pt"'


# A good job


def test_a_good_job(attempt, data, tmp_path):
    target = tmp_path / "results"
    run = attempt(
        make_job(
            make_step(TRAIN),
            inputs=(make_input(f"file://{data}/data.tar.gz"),),
            output=Output(Location(f"file://{target}")),
            expect=(ExpectedOutput("model.pt", min_bytes=1000, command='test "$(wc -c < "$PACKTRAIN_FILE")" = 1000'),),
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
    with HttpServer(data, token="t0ken") as origin, HttpServer(tmp_path / "sink", writable=True) as sink:
        source = make_input(f"{origin.url}/data.tar.gz", token=Secret("token"))
        output = Output(Location(f"{sink.url}/model.pt"))
        run = attempt(make_job(make_step(TRAIN), inputs=(source,), output=output), secrets={"token": "t0ken"}).run()
        assert run.stage("fetch")["source"] == f"{origin.url}/data.tar.gz"
        assert run.stage("fetch")["bytes"] == (data / "data.tar.gz").stat().st_size
        assert run.stage("unpack")["files"] == 1
    assert run.process.returncode == 0, run.stderr
    assert (tmp_path / "sink" / "model.pt").read_bytes() == b"0123456789" * 100


def test_an_archive_is_unpacked_while_it_comes(attempt, data):
    with HttpServer(data) as origin:
        source = make_input(f"{origin.url}/data.tar.gz")
        run = attempt(make_job(make_step('ls -A input > "$DEEPSQUARE_OUTPUT/list"'), inputs=(source,))).run()
    assert run.process.returncode == 0, run.stderr
    assert run.stage("fetch")["unpacked_files"] == run.stage("unpack")["files"] == 1
    assert run.stage("fetch")["unpacked_bytes"] == run.stage("unpack")["bytes"] == 1000
    assert (run.home.output / "list").read_text() == "data.txt\n"


def test_a_second_attempt_finds_its_data_in_the_depot(attempt, data, tmp_path):
    options = ("--cache", tmp_path / "depot", "--cache-limit", "100000")
    with HttpServer(data) as origin:
        for _ in range(2):
            run = attempt(
                make_job(make_step(TRAIN), inputs=(make_input(f"{origin.url}/data.tar.gz"),)), options=options
            ).run()
            assert run.process.returncode == 0, run.stderr
        assert run.stage("fetch")["source"] == f"the download cache {tmp_path / 'depot'}"
    assert (run.home.output / "model.pt").read_bytes() == b"0123456789" * 100


def test_the_first_event(attempt):
    run = attempt(make_job(make_step("true"))).run()
    first = run.events()[0]
    assert (first.kind, first.seq, first.job, first.run) == ("agent.started", 1, "0", "run-1")
    assert first.data["attempt"] == "d1"
    assert first.data["pid"] == run.process.pid
    assert first.data["version"] == __version__


def test_the_probe_tells_figures(attempt, data):
    run = attempt(make_job(make_step("true"), inputs=(make_input(f"file://{data}/data.tar.gz"),))).run()
    probe = run.stage("probe")
    assert probe["python"].startswith(f"{sys.version_info[0]}.{sys.version_info[1]}")
    assert probe["disk_free"] > 0
    assert probe["memory_mb"] > 0
    assert probe["gpus"] == []
    assert probe["inputs"] == [{"url": f"file://{data}/data.tar.gz", "size": (data / "data.tar.gz").stat().st_size}]


def test_outputs_without_a_destination_come_home(attempt, tmp_path):
    links = 'echo real > ../tmp/big; ln -s "$PWD/../tmp/big" out; ln -s out short; mkdir d; echo 1 > d/f'
    run = attempt(
        make_job(make_step(f'cd "$DEEPSQUARE_OUTPUT"; {links}'), expect=(ExpectedOutput("out"), ExpectedOutput("d/f")))
    ).run()
    assert run.process.returncode == 0, run.stderr
    assert (run.home.output / "out").read_text() == "real\n"
    assert (run.home.output / "short").read_text() == "real\n"
    assert (run.home.output / "d" / "f").read_text() == "1\n"
    assert run.sandbox_is_gone


def test_a_plan_alone_is_enough(agent, tmp_path):
    write_plan(
        Plan("r", "n", "local", (make_job(make_step('echo 1 > "$DEEPSQUARE_OUTPUT/f"')),)), tmp_path / "plan.json"
    )
    command = [sys.executable, "-I", "-S", agent, "plan.json"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=30)
    assert (tmp_path / "packtrain-attempt" / "output" / "f").read_text() == "1\n"
    assert not (tmp_path / "packtrain-attempt" / "sandbox").exists()


def test_through_the_launcher_with_an_empty_path(agent, tmp_path):
    write_plan(Plan("r", "n", "local", (make_job(make_step("true")),)), tmp_path / "plan.json")
    environ = {"PATH": "", "PACKTRAIN_PYTHON": sys.executable}
    done = subprocess.run(
        ["/bin/sh", agent.parent / "launch.sh", "plan.json"], cwd=tmp_path, env=environ, capture_output=True, timeout=30
    )
    assert done.returncode == 0, done.stderr


def test_metrics_become_events(attempt):
    lines = "".join(f'echo \'{{"step": {n}, "loss": {9 - n}}}\' >> "$PACKTRAIN_METRICS"\n' for n in range(3))
    run = attempt(make_job(make_step(lines + 'echo nonsense >> "$PACKTRAIN_METRICS"'))).run()
    assert run.process.returncode == 0, run.stderr
    assert run.events("metric")[-1].data == {"step": 2, "loss": 7}
    assert sum("metrics file" in text for text in run.notices) == 1


def test_an_empty_prefix_is_no_error(attempt, tmp_path):
    (tmp_path / "bucket").mkdir()
    source = Input("", "input", prefix=Location(f"file://{tmp_path}/bucket"), unpack="never")
    run = attempt(make_job(make_step("true"), inputs=(source,))).run()
    assert run.process.returncode == 0, run.stderr
    assert any("nothing below" in text for text in run.notices)


def test_a_prefix_brings_every_object(attempt, tmp_path):
    (tmp_path / "bucket" / "sub").mkdir(parents=True)
    (tmp_path / "bucket" / "a").write_text("A")
    (tmp_path / "bucket" / "sub" / "b").write_text("B")
    source = Input("x", "inputs/x", prefix=Location(f"file://{tmp_path}/bucket"), unpack="never")
    run = attempt(
        make_job(make_step('cat inputs/x/a inputs/x/sub/b > "$DEEPSQUARE_OUTPUT/both"'), inputs=(source,))
    ).run()
    assert run.process.returncode == 0, run.stderr
    assert (run.home.output / "both").read_text() == "AB"


def test_chmod_reaches_everything(attempt, data):
    source = make_input(f"file://{data}/data.tar.gz", chmod=0o750)
    run = attempt(
        make_job(make_step('stat -c %a input input/data.txt > "$DEEPSQUARE_OUTPUT/modes"'), inputs=(source,))
    ).run()
    assert (run.home.output / "modes").read_text() == "750\n750\n", run.stderr


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [("labels.csv", b"a,b\n", []), ("data.tar.gz", b"\x00\x01\x02", ["is no archive"])],
)
def test_what_is_no_archive_stays_as_it_is(attempt, tmp_path, name, data, told):
    """Worth a word only where its name says that it is one; and there its digest has to say that it is right."""
    (tmp_path / name).write_bytes(data)
    source = make_input(f"file://{tmp_path}/{name}", digest=Digest("sha256", hashlib.sha256(data).hexdigest()))
    run = attempt(make_job(make_step(f"test -f input/{name}"), inputs=(source,))).run()
    assert run.process.returncode == 0, run.stderr
    assert [text for text in run.notices if "archive" in text] == [
        f"{name} in input {words}, whatever its name says, and stays as it is" for words in told
    ]


def test_many_outputs_are_listed_beside_them(attempt):
    """For whoever has to know whether all of them came home; the last event has no room for so many."""
    run = attempt(make_job(make_step('cd "$PACKTRAIN_OUTPUT"; for n in $(seq 1500); do echo $n > $n; done'))).run()
    assert run.process.returncode == 0, run.stderr
    assert (len(run.ended["outputs"]), run.ended["n_outputs"]) == (1000, 1500)
    listed = run.home.listed(run.events()[0].emitter).read_text().splitlines()
    assert {json.loads(line)["path"] for line in listed} == {str(n) for n in range(1, 1501)}


def test_outputs_that_are_links_are_files_or_told(attempt):
    links = "ln -s ../beside model; ln -s nowhere broken; ln -s sub latest; touch .half.tmp-1"
    run = attempt(
        make_job(make_step(f'echo 1 > beside; cd "$PACKTRAIN_OUTPUT"; mkdir sub; echo 2 > sub/x; {links}'))
    ).run()
    assert run.process.returncode == 0, run.stderr
    assert {path: (run.home.output / path).read_text() for path in ("model", "sub/x", "latest/x")} == {
        "model": "1\n",
        "sub/x": "2\n",
        "latest/x": "2\n",
    }
    assert sorted(entry["path"] for entry in run.ended["outputs"]) == ["latest/x", "model", "sub/x"]
    assert "the output broken is left out: it is a link to nowhere, where there is no file" in run.notices


def test_continuous_sync_copies_while_the_step_runs(attempt, tmp_path):
    target = tmp_path / "results"
    step = make_step(
        'cd "$DEEPSQUARE_OUTPUT"; echo 1 > early; while [ ! -e ../go ]; do sleep 0.05; done; echo 2 > late'
    )
    run = attempt(make_job(step, output=Output(Location(f"file://{target}"), continuous_sync=True))).start()
    deadline = time.monotonic() + 25
    while not (target / "early").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (target / "early").read_text() == "1\n"
    (next(run.scratch.iterdir()) / "go").touch()
    assert run.finish() == 0, run.stderr
    assert (target / "late").read_text() == "2\n"


# Leaving


def terminated(run, stage, grace=0.0):
    run.process.send_signal(signal.SIGTERM)
    started = time.monotonic()
    code = run.wait()
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
    run = attempt(make_job(make_step("true"), inputs=(make_input(f"{silent}/x"),), retry_timeout_s=60)).start()
    run.await_event("stage.started", stage="probe")
    terminated(run, "probe")


def test_term_while_fetching(attempt, silent):
    run = attempt(make_job(make_step("true"), inputs=(make_input(f"{silent}/x"),), retry_timeout_s=60)).start()
    run.await_event("stage.started", stage="fetch")
    terminated(run, "fetch")


@pytest.fixture(scope="session")
def many_files(tmp_path_factory):
    return make_tar(tmp_path_factory.mktemp("many") / "many.tar.gz", {f"d/{n}": b"" for n in range(40_000)})


def test_term_while_unpacking(attempt, many_files):
    run = attempt(make_job(make_step("true"), inputs=(make_input(f"file://{many_files}"),))).start()
    run.await_event("stage.started", stage="unpack")
    terminated(run, "unpack")


def test_term_while_a_step_runs(attempt, tmp_path):
    target = tmp_path / "results"
    step = make_step('echo partial > "$DEEPSQUARE_OUTPUT/log"; touch started; sleep 60')
    run = attempt(make_job(step, output=Output(Location(f"file://{target}")))).start()
    run.await_file("started")
    terminated(run, "steps")
    assert [p.read_text() for p in target.rglob("log")] == ["partial\n"]
    assert not (target / "log").exists()


def test_term_while_checking(attempt):
    expect = ExpectedOutput("f", command="touch ../judging; sleep 60")
    run = attempt(make_job(make_step('echo 1 > "$DEEPSQUARE_OUTPUT/f"'), expect=(expect,))).start()
    run.await_file("judging")
    terminated(run, "check")


def test_term_while_syncing(attempt, silent):
    step = make_step('echo 1 > "$DEEPSQUARE_OUTPUT/f"')
    run = attempt(
        make_job(step, output=Output(Location(f"{silent}/f")), limits=Limits(grace_s=1), retry_timeout_s=60)
    ).start()
    run.await_event("stage.started", stage="sync")
    terminated(run, "sync", grace=1)
    assert [p.read_text() for p in run.home.output.rglob("f")] == ["1\n"]


def test_term_while_cleaning_changes_nothing(attempt):
    run = attempt(make_job(make_step("mkdir many; cd many; seq 1 20000 | xargs touch"))).start()
    run.await_event("stage.started", stage="clean")
    run.process.send_signal(signal.SIGTERM)
    assert run.finish() == 0, run.stderr
    assert run.sandbox_is_gone


def test_two_agents_with_one_claim(attempt):
    first = attempt(make_job(make_step("touch started; while [ ! -e go ]; do sleep 0.05; done"))).start()
    first.await_file("started")
    before = {p: p.read_bytes() for p in first.home.root.rglob("*") if p.is_file()}
    second = attempt(make_job(make_step("true")))
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
    step = make_step(
        'echo "the token is $TOKEN"; echo "$TOKEN" >&2; printf %s "$TOKEN" | base64; touch started; '
        'while [ ! -e go ]; do sleep 0.05; done; echo "{\\"note\\": \\"$TOKEN\\"}" >> "$PACKTRAIN_METRICS"; '
        'echo "$TOKEN" > "$DEEPSQUARE_OUTPUT/../tmp/x"; echo "bye $TOKEN" >&2; exit 5'
    )
    with HttpServer(data, token=token) as origin:
        inputs = (make_input(f"{origin.url}/data.tar.gz", token=Secret("token")),)
        plan = make_job(step, inputs=inputs, env=(EnvVar("TOKEN", Secret("token")),))
        run = attempt(plan, secrets={"token": token + "\n"}).start()
        run.await_file("started")
        shown = b"".join(_command_lines())
        (next(run.scratch.iterdir()) / "go").touch()
        assert run.finish() == 10, run.stderr
        assert f"Bearer {token}" in {seen.headers.get("authorization") for seen in origin.requests}
    written = b"".join(p.read_bytes() for p in run.home.root.rglob("*") if p.is_file())
    assert b"the token is ***" in written
    assert b"agent.pyz" in shown
    for place in (written, shown, run.stderr.encode()):
        assert b"s3cr3t" not in place


def _command_lines():
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield (process / "cmdline").read_bytes()
