"""Tests of the ways in which an attempt can fail: exit code, one message, and a removed sandbox."""

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


def test_failing_step(attempt, tmp_path):
    target = tmp_path / "results"
    step = make_step('echo half > "$DEEPSQUARE_OUTPUT/model.pt"; echo "no CUDA device" >&2; exit 3', name="train")
    run = attempt(make_job(step, output=Output(Location(f"file://{target}")))).start_and_wait()
    assert_failed(run, 10, "step_failed", "steps", "train", "3", "no CUDA device")
    emitter = run.events()[0].emitter
    assert [p.relative_to(target).as_posix() for p in target.rglob("*") if p.is_file()] == [
        f".packtrain/{emitter}/model.pt"
    ]
    assert [o["path"] for o in run.end_data["outputs"]] == [f".packtrain/{emitter}/model.pt"]


def test_missing_output(attempt):
    run = attempt(
        make_job(make_step('echo 1 > "$DEEPSQUARE_OUTPUT/model.bin"'), expect=(ExpectedOutput("model.pt"),))
    ).start_and_wait()
    assert_failed(run, 11, "output_missing", "check", "'model.pt' is missing", "contains model.bin")


def test_empty_output(attempt):
    run = attempt(
        make_job(make_step('touch "$DEEPSQUARE_OUTPUT/model.pt"'), expect=(ExpectedOutput("model.pt"),))
    ).start_and_wait()
    assert_failed(run, 12, "output_empty", "check", "model.pt has 0 bytes")


def test_output_fails_its_check(attempt):
    expected_output = ExpectedOutput("model.pt", command='echo "bad magic in $PACKTRAIN_FILE" >&2; exit 4')
    run = attempt(
        make_job(make_step('echo x > "$DEEPSQUARE_OUTPUT/model.pt"'), expect=(expected_output,))
    ).start_and_wait()
    assert_failed(run, 13, "output_invalid", "check", "model.pt", "exit code 4: bad magic in ")


def test_truncated_archive(attempt, data):
    archive = make_tar(data / "whole.tar.gz", {"a": os.urandom(200_000)}).read_bytes()
    (data / "short.tar.gz").write_bytes(archive[: len(archive) // 2])
    run = attempt(make_job(make_step("true"), inputs=(make_input(f"file://{data}/short.tar.gz"),))).start_and_wait()
    assert_failed(run, 32, "truncated", "unpack", "short.tar.gz")


def test_archive_member_outside_of_folder(attempt, data, tmp_path):
    make_tar(data / "evil.tar.gz", {"../../x": b"boo"})
    run = attempt(make_job(make_step("true"), inputs=(make_input(f"file://{data}/evil.tar.gz"),))).start_and_wait()
    assert_failed(run, 34, "archive_unsafe", "unpack", "../../x")
    assert not list(tmp_path.rglob("x"))


def test_wrong_digest(attempt, data):
    job_input = make_input(f"file://{data}/data.tar.gz", digest=Digest("sha256", "0" * 64))
    assert_failed(
        attempt(make_job(make_step("true"), inputs=(job_input,))).start_and_wait(),
        33,
        "digest_mismatch",
        "fetch",
        "data.tar.gz",
    )


def test_too_little_disk_fails_before_fetch(attempt, data):
    run = attempt(
        make_job(make_step("true"), inputs=(make_input(f"file://{data}/data.tar.gz", size=10**18),))
    ).start_and_wait()
    assert_failed(run, 45, "disk_full", "probe", "needs 2000000000.000 GB")
    assert run.events("progress") == []


@pytest.fixture
def small_disk(tmp_path):
    """Mount a file system of 4 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    process = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True)
    if process.returncode != 0:
        pytest.skip("mounting is not permitted")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_disk_full_during_fetch(attempt, data, small_disk):
    """The server does not send the size."""
    (data / "big.bin").write_bytes(bytes(6_000_000))
    with HttpServer(data, faults=[ResponseFault(omit_length=True)] * 9) as origin:
        run = attempt(make_job(make_step("true"), inputs=(make_input(f"{origin.url}/big.bin", unpack="never"),)))
        run.scratch = small_disk / "scratch"
        run.start_and_wait()
    assert_failed(run, 45, "disk_full", "fetch")


def test_disk_full_during_step(attempt, small_disk):
    """The journal is on the same disk; the last events fit once the sandbox is removed."""
    run = attempt(make_job(make_step('head -c 6000000 /dev/zero > "$DEEPSQUARE_OUTPUT/big"', name="write")))
    run.attempt_folder = type(run.attempt_folder)(small_disk / "attempt")
    run.scratch = small_disk / "scratch"
    run.start_and_wait()
    assert run.process.returncode in (10, 45), run.stderr
    assert run.end_data["failure"]["kind"] in ("step_failed", "disk_full")
    assert run.is_sandbox_removed


def test_html_error_page(attempt, tmp_path):
    page = ResponseFault(
        html_body=b"<!DOCTYPE html><html><head><title>Service down for maintenance</title></head></html>"
    )
    with HttpServer(tmp_path, faults=[page] * 99) as origin:
        run = attempt(
            make_job(make_step("true"), inputs=(make_input(f"{origin.url}/cifar-10-python.tar.gz"),))
        ).start_and_wait()
    assert_failed(run, 31, "unexpected_content", "fetch", "cifar-10-python.tar.gz", "Service down for maintenance")


def test_missing_token(attempt, data):
    with HttpServer(data, token="good-token") as origin:
        run = attempt(make_job(make_step("true"), inputs=(make_input(f"{origin.url}/data.tar.gz"),))).start_and_wait()
    assert_failed(run, 14, "access_denied", "fetch", "401", "data.tar.gz")


def test_missing_object(attempt, data):
    with HttpServer(data) as origin:
        run = attempt(make_job(make_step("true"), inputs=(make_input(f"{origin.url}/gone.tar.gz"),))).start_and_wait()
    assert_failed(run, 30, "object_missing", "fetch", "gone.tar.gz")


def test_truncated_download(attempt, data):
    with HttpServer(data, faults=[None] + [ResponseFault(truncate_to_bytes=50)] * 99) as origin:
        size = (data / "data.tar.gz").stat().st_size
        run = attempt(
            make_job(make_step("true"), inputs=(make_input(f"{origin.url}/data.tar.gz", size=size),))
        ).start_and_wait()
    assert_failed(run, 32, "truncated", "fetch", "50")


def test_unreachable_input_is_only_a_notice(attempt, data):
    with HttpServer(
        data, faults=[ResponseFault(status=404), ResponseFault(status=503), ResponseFault(status=404)]
    ) as origin:
        run = attempt(
            make_job(make_step("true"), inputs=(make_input(f"{origin.url}/data.tar.gz"),), retry_timeout_s=20)
        ).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert run.stage_data("probe")["inputs"][0]["failure_kind"] == "object_missing"
    assert any("data.tar.gz" in text for text in run.notices)
    assert run.stage_data("fetch")["retries"] > 0


def test_unknown_host(attempt):
    run = attempt(
        make_job(make_step("true"), inputs=(make_input("http://no-such-host.invalid/cifar-10-python.tar.gz"),))
    ).start_and_wait()
    assert_failed(run, 46, "host_unknown", "fetch", "no-such-host.invalid")
    assert any("no-such-host.invalid" in text for text in run.notices)


def test_gpu_below_requirements(attempt, tmp_path):
    (tmp_path / "bin").mkdir()
    nvidia_smi = tmp_path / "bin" / "nvidia-smi"
    nvidia_smi.write_text("#!/bin/sh\necho '0, GPU-1, Tesla K40, 11441, 460.32.03, 3.5'\n")
    nvidia_smi.chmod(0o755)
    resources = Resources(mem_per_cpu_mb=16, gpus=1, gpu=GpuRequirements(min_capability="7.0"))
    environ = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    run = attempt(make_job(make_step("true"), resources=resources), environ=environ).start_and_wait()
    assert_failed(run, 48, "gpu_unusable", "probe", "Tesla K40", "is 3.5, required is 7.0")
    assert run.stage_data("probe")["gpus"][0]["memory_mb"] == 11441


def test_too_little_memory(attempt):
    run = attempt(make_job(make_step("true"), resources=Resources(mem_per_cpu_mb=10**9))).start_and_wait()
    assert_failed(run, 49, "insufficient_memory", "probe", "needs 1000000000 MB")


def test_missing_secret(attempt):
    run = attempt(make_job(make_step("true"), env=(EnvVar("TOKEN", Secret("token")),))).start_and_wait()
    assert_failed(run, 15, "secret_missing", "steps", "'token'")


def test_stream_without_index(attempt, data):
    run = attempt(
        make_job(make_step("true"), inputs=(make_input(f"file://{data}/data.tar.gz", mode="stream"),))
    ).start_and_wait()
    assert_failed(run, 18, "unsupported", "fetch", "mode: stream", "no index")


@pytest.mark.parametrize("transfer", ["plugin", "native"])
def test_agent_fetches_what_engine_did_not_transfer(attempt, data, transfer):
    """A workflow for a pool also runs on this machine."""
    job_input = make_input(f"file://{data}/data.tar.gz", transfer=transfer, unpack="never")
    assert (
        attempt(make_job(make_step("test -s $PACKTRAIN_INPUT/data.tar.gz"), inputs=(job_input,)))
        .start_and_wait()
        .process.returncode
        == 0
    )


def test_wall_time_limit(attempt):
    run = attempt(make_job(make_step("sleep 60"), limits=Limits(wall_time_s=1.0, grace_s=2))).start_and_wait()
    assert_failed(run, 16, "wall_time", "steps", "`limits.wallTime` of 1 s")


def test_destination_refuses(attempt, tmp_path):
    """Outputs that cannot be uploaded remain in the attempt folder."""
    (tmp_path / "file").write_text("not a folder")
    step = make_step('echo precious > "$DEEPSQUARE_OUTPUT/model.pt"')
    run = attempt(make_job(step, output=Output(Location(f"file://{tmp_path}/file/below")))).start_and_wait()
    assert_failed(run, 38, "upload_failed", "sync", f"{tmp_path}/file/below")
    assert [p.read_text() for p in run.attempt_folder.output.rglob("model.pt")] == ["precious\n"]


def test_first_of_two_failures_is_reported(attempt, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    step = make_step('echo half > "$DEEPSQUARE_OUTPUT/model.pt"; exit 3')
    run = attempt(make_job(step, output=Output(Location(f"file://{tmp_path}/file/below")))).start_and_wait()
    assert_failed(run, 10, "step_failed", "steps")
    assert run.stage_data("sync")["failure"] is not None
    assert run.stage_data("sync")["failure"]["detail"] in run.notices


def test_unreadable_plan(attempt):
    run = attempt(make_job(make_step("true")))
    (run.folder / "plan.json").write_text("{")
    run.start_and_wait()
    assert run.process.returncode == 71
    assert "plan" in run.stderr


def test_sandbox_without_permissions_is_removed(attempt):
    run = attempt(make_job(make_step("mkdir -p a/b; touch a/b/c; chmod 0 a/b a"))).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert run.is_sandbox_removed
