"""Each way in which an attempt can fail: its own exit code, one sentence, a clean sandbox."""

import os
import subprocess

import pytest

from packtrain.plan import (
    Digest,
    EnvVar,
    ExpectedOutput,
    GpuRequirements,
    Limits,
    Location,
    Output,
    Resources,
    Secret,
)
from testbed.http_server import HttpServer, ResponseFault
from tests.support.agent_runs import assert_failed, make_input, make_job, make_step, make_tar

pytestmark = pytest.mark.slow


def test_a_failing_step(attempt, tmp_path):
    target = tmp_path / "results"
    step = make_step('echo half > "$DEEPSQUARE_OUTPUT/model.pt"; echo "no CUDA, no cry" >&2; exit 3', name="train")
    run = attempt(make_job(step, output=Output(Location(f"file://{target}")))).run()
    assert_failed(run, 10, "step_failed", "steps", "train", "3", "no CUDA, no cry")
    emitter = run.events()[0].emitter
    assert [p.relative_to(target).as_posix() for p in target.rglob("*") if p.is_file()] == [
        f".packtrain/{emitter}/model.pt"
    ]
    assert [o["path"] for o in run.ended["outputs"]] == [f".packtrain/{emitter}/model.pt"]


def test_a_missing_output(attempt):
    run = attempt(
        make_job(make_step('echo 1 > "$DEEPSQUARE_OUTPUT/model.bin"'), expect=(ExpectedOutput("model.pt"),))
    ).run()
    assert_failed(run, 11, "output_missing", "check", "'model.pt' is missing", "contains model.bin")


def test_an_empty_output(attempt):
    run = attempt(
        make_job(make_step('touch "$DEEPSQUARE_OUTPUT/model.pt"'), expect=(ExpectedOutput("model.pt"),))
    ).run()
    assert_failed(run, 12, "output_empty", "check", "model.pt has 0 bytes")


def test_an_output_that_fails_its_check(attempt):
    expect = ExpectedOutput("model.pt", command='echo "bad magic in $PACKTRAIN_FILE" >&2; exit 4')
    run = attempt(make_job(make_step('echo x > "$DEEPSQUARE_OUTPUT/model.pt"'), expect=(expect,))).run()
    assert_failed(run, 13, "output_invalid", "check", "model.pt", "exit code 4: bad magic in ")


def test_a_truncated_archive(attempt, data):
    whole = make_tar(data / "whole.tar.gz", {"a": os.urandom(200_000)}).read_bytes()
    (data / "short.tar.gz").write_bytes(whole[: len(whole) // 2])
    run = attempt(make_job(make_step("true"), inputs=(make_input(f"file://{data}/short.tar.gz"),))).run()
    assert_failed(run, 32, "truncated", "unpack", "short.tar.gz")


def test_a_member_that_leaves_the_folder(attempt, data, tmp_path):
    make_tar(data / "evil.tar.gz", {"../../x": b"boo"})
    run = attempt(make_job(make_step("true"), inputs=(make_input(f"file://{data}/evil.tar.gz"),))).run()
    assert_failed(run, 34, "archive_unsafe", "unpack", "../../x")
    assert not list(tmp_path.rglob("x"))


def test_a_wrong_digest(attempt, data):
    source = make_input(f"file://{data}/data.tar.gz", digest=Digest("sha256", "0" * 64))
    assert_failed(
        attempt(make_job(make_step("true"), inputs=(source,))).run(), 33, "digest_mismatch", "fetch", "data.tar.gz"
    )


def test_less_disk_than_needed_is_seen_before_data_moves(attempt, data):
    run = attempt(make_job(make_step("true"), inputs=(make_input(f"file://{data}/data.tar.gz", size=10**18),))).run()
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
    with HttpServer(data, faults=[ResponseFault(omit_length=True)] * 9) as origin:
        run = attempt(make_job(make_step("true"), inputs=(make_input(f"{origin.url}/big.bin", unpack="never"),)))
        run.scratch = small_disk / "scratch"
        run.run()
    assert_failed(run, 45, "disk_full", "fetch")


def test_a_disk_that_fills_in_a_step(attempt, small_disk):
    """The journal is on it, too: what matters is still told once the sandbox is gone."""
    run = attempt(make_job(make_step('head -c 6000000 /dev/zero > "$DEEPSQUARE_OUTPUT/big"', name="write")))
    run.home = type(run.home)(small_disk / "home")
    run.scratch = small_disk / "scratch"
    run.run()
    assert run.process.returncode in (10, 45), run.stderr
    assert run.ended["failure"]["kind"] in ("step_failed", "disk_full")
    assert run.sandbox_is_gone


def test_an_html_error_page_instead_of_data(attempt, tmp_path):
    page = ResponseFault(
        html_body=b"<!DOCTYPE html><html><head><title>Service down for maintenance</title></head></html>"
    )
    with HttpServer(tmp_path, faults=[page] * 99) as origin:
        run = attempt(make_job(make_step("true"), inputs=(make_input(f"{origin.url}/cifar-10-python.tar.gz"),))).run()
    assert_failed(run, 31, "unexpected_content", "fetch", "cifar-10-python.tar.gz", "Service down for maintenance")


def test_a_missing_token(attempt, data):
    with HttpServer(data, token="good-token") as origin:
        run = attempt(make_job(make_step("true"), inputs=(make_input(f"{origin.url}/data.tar.gz"),))).run()
    assert_failed(run, 14, "access_denied", "fetch", "401", "data.tar.gz")


def test_a_missing_object(attempt, data):
    with HttpServer(data) as origin:
        run = attempt(make_job(make_step("true"), inputs=(make_input(f"{origin.url}/gone.tar.gz"),))).run()
    assert_failed(run, 30, "object_missing", "fetch", "gone.tar.gz")


def test_a_download_that_ends_early(attempt, data):
    with HttpServer(data, faults=[None] + [ResponseFault(truncate_to_bytes=50)] * 99) as origin:
        size = (data / "data.tar.gz").stat().st_size
        run = attempt(make_job(make_step("true"), inputs=(make_input(f"{origin.url}/data.tar.gz", size=size),))).run()
    assert_failed(run, 32, "truncated", "fetch", "50")


def test_a_service_that_restarts_is_news_and_no_verdict(attempt, data):
    with HttpServer(
        data, faults=[ResponseFault(status=404), ResponseFault(status=503), ResponseFault(status=404)]
    ) as origin:
        run = attempt(
            make_job(make_step("true"), inputs=(make_input(f"{origin.url}/data.tar.gz"),), retry_timeout_s=20)
        ).run()
    assert run.process.returncode == 0, run.stderr
    assert run.stage("probe")["inputs"][0]["problem"] == "object_missing"
    assert any("data.tar.gz" in text for text in run.notices)
    assert run.stage("fetch")["retries"] > 0


def test_an_unknown_host(attempt):
    run = attempt(
        make_job(make_step("true"), inputs=(make_input("http://no-such-host.invalid/cifar-10-python.tar.gz"),))
    ).run()
    assert_failed(run, 46, "host_unknown", "fetch", "no-such-host.invalid")
    assert any("no-such-host.invalid" in text for text in run.notices)


def test_no_gpu_where_one_is_needed(attempt, tmp_path):
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '0, GPU-1, Tesla K40, 11441, 460.32.03, 3.5'\n")
    tool.chmod(0o755)
    needs = Resources(mem_per_cpu_mb=16, gpus=1, gpu=GpuRequirements(min_capability="7.0"))
    environ = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    run = attempt(make_job(make_step("true"), resources=needs), environ=environ).run()
    assert_failed(run, 48, "gpu_unusable", "probe", "Tesla K40", "is 3.5, needed is 7.0")
    assert run.stage("probe")["gpus"][0]["memory_mb"] == 11441


def test_more_memory_than_there_is(attempt):
    run = attempt(make_job(make_step("true"), resources=Resources(mem_per_cpu_mb=10**9))).run()
    assert_failed(run, 49, "insufficient_memory", "probe", "needs 1000000000 MB")


def test_a_missing_secret(attempt):
    run = attempt(make_job(make_step("true"), env=(EnvVar("TOKEN", Secret("token")),))).run()
    assert_failed(run, 15, "secret_missing", "steps", "'token'")


def test_data_to_stream_without_an_index(attempt, data):
    run = attempt(make_job(make_step("true"), inputs=(make_input(f"file://{data}/data.tar.gz", mode="stream"),))).run()
    assert_failed(run, 18, "unsupported", "fetch", "streamed", "no index of it")


@pytest.mark.parametrize("delivery", ["plugin", "native"])
def test_what_no_engine_has_delivered_is_fetched(attempt, data, delivery):
    """A workflow for a pool runs on this machine, too."""
    source = make_input(f"file://{data}/data.tar.gz", delivery=delivery, unpack="never")
    assert (
        attempt(make_job(make_step("test -s $PACKTRAIN_INPUT/data.tar.gz"), inputs=(source,))).run().process.returncode
        == 0
    )


def test_the_wall_limit(attempt):
    run = attempt(make_job(make_step("sleep 60"), limits=Limits(wall_time_s=1.0, grace_s=2))).run()
    assert_failed(run, 16, "wall_time", "steps", "`limits.wallTime` of 1 s")


def test_a_destination_that_refuses(attempt, tmp_path):
    """What could not be delivered stays with the attempt."""
    (tmp_path / "file").write_text("not a folder")
    step = make_step('echo precious > "$DEEPSQUARE_OUTPUT/model.pt"')
    run = attempt(make_job(step, output=Output(Location(f"file://{tmp_path}/file/below")))).run()
    assert_failed(run, 38, "upload_failed", "sync", f"{tmp_path}/file/below")
    assert [p.read_text() for p in run.home.output.rglob("model.pt")] == ["precious\n"]


def test_of_two_failures_the_first_is_reported(attempt, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    step = make_step('echo half > "$DEEPSQUARE_OUTPUT/model.pt"; exit 3')
    run = attempt(make_job(step, output=Output(Location(f"file://{tmp_path}/file/below")))).run()
    assert_failed(run, 10, "step_failed", "steps")
    assert run.stage("sync")["failure"] is not None
    assert run.stage("sync")["failure"]["detail"] in run.notices


def test_a_plan_that_cannot_be_read(attempt):
    run = attempt(make_job(make_step("true")))
    (run.folder / "plan.json").write_text("{")
    run.run()
    assert run.process.returncode == 71
    assert "plan" in run.stderr


def test_permissions_do_not_keep_the_sandbox(attempt):
    run = attempt(make_job(make_step("mkdir -p a/b; touch a/b/c; chmod 0 a/b a"))).run()
    assert run.process.returncode == 0, run.stderr
    assert run.sandbox_is_gone
