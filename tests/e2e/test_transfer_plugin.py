"""The transfer plugin as a program, against real servers with faults."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys

import pytest

from packtrain.condor.classads import format_new_classad, get_attribute, parse_new_classads, parse_old_classad
from testbed.federation import Federation
from testbed.http_server import HttpServer, ResponseFault
from testbed.s3 import ACCESS_KEY, BUCKET, SECRET_KEY
from tests.support.plugin_runs import PluginRun

pytestmark = pytest.mark.slow

DATA = bytes(range(256)) * 12_000


@pytest.fixture
def origin(tmp_path):
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "data.bin").write_bytes(DATA)
    (tmp_path / "served" / "small.txt").write_text("small\n")
    with HttpServer(tmp_path / "served", writable=True) as origin:
        yield origin


def hashed_ca_dir(authority):
    """Create a CA folder with the hashed names that OpenSSL expects."""
    command = ["openssl", "x509", "-noout", "-hash", "-in", str(authority)]
    name = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    folder = authority.parent / "hashed_ca_dir"
    folder.mkdir()
    (folder / f"{name}.0").write_text(authority.read_text())
    return folder


@pytest.fixture
def plugin(tmp_path):
    (tmp_path / "job_dir").mkdir()
    return PluginRun(tmp_path / "job_dir")


def test_plugin_command(tmp_path):
    command = [sys.executable, "-m", "packtrain", "plugin", "-o"]
    output = subprocess.run([*command, tmp_path, "--json"], capture_output=True, text=True, check=True).stdout
    assert json.loads(output)["plugin"] == str(tmp_path / "packtrain-plugin.pyz")
    assert os.access(tmp_path / "packtrain-plugin.pyz", os.X_OK)
    failed = subprocess.run([*command, tmp_path / "none" / "x"], capture_output=True, text=True)
    assert failed.returncode == 2 and "cannot write" in failed.stderr


def test_classad_option(plugin):
    output = subprocess.run([plugin.program, "-classad"], capture_output=True, text=True, check=True).stdout
    ad = parse_old_classad(output)
    assert ad["MultipleFileSupport"] is True and ad["PluginType"] == "FileTransfer" and ad["ProtocolVersion"] == 2
    assert ad["SupportedMethods"] == "osdf,pelican,http,https,s3"


def test_downloads(plugin, origin):
    job_dir = plugin.folder
    first, second = plugin(
        (f"{origin.url}/data.bin", job_dir / "data.bin"), (f"{origin.url}/small.txt", job_dir / "renamed")
    )
    assert plugin.exit_code == 0, plugin.stderr
    assert (job_dir / "data.bin").read_bytes() == DATA
    assert (job_dir / "renamed").read_text() == "small\n"
    assert first["TransferSuccess"] is True
    assert first["TransferTotalBytes"] == first["TransferFileBytes"] == len(DATA)
    assert (first["TransferUrl"], first["TransferFileName"]) == (f"{origin.url}/data.bin", str(job_dir / "data.bin"))
    assert (first["TransferType"], first["TransferProtocol"]) == ("download", "http")
    assert first["TransferEndTime"] >= first["TransferStartTime"] > 0
    assert first["ConnectionTimeSeconds"] == pytest.approx(first["TransferEndTime"] - first["TransferStartTime"], abs=1)
    assert first["TransferHostName"].startswith("127.0.0.1")
    assert first["DeveloperData"]["Retries"] == 0
    assert second["TransferTotalBytes"] == 6
    assert not list(job_dir.glob("*.part*"))


def test_missing_object_is_not_retryable(plugin, origin):
    (ad,) = plugin((f"{origin.url}/none.bin", plugin.folder / "none.bin"))
    assert plugin.exit_code == 1
    assert (ad["TransferSuccess"], ad["TransferRetryable"]) == (False, False)
    assert "returned 404" in ad["TransferError"]
    (error,) = ad["TransferErrorData"]
    assert (error["ErrorType"], error["Retryable"], error["ErrorCode"]) == ("Specification", -1, 30)
    assert error["FailedServer"].startswith("127.0.0.1")
    assert "returned 404" in plugin.stderr


def test_unavailable_service_is_retryable(plugin, origin):
    origin.faults = [ResponseFault(status=503, headers={"Retry-After": "1"})] * 1000
    (ad,) = plugin((f"{origin.url}/data.bin", plugin.folder / "data.bin"))
    assert plugin.exit_code == 11
    assert ad["TransferRetryable"] is True
    (error,) = ad["TransferErrorData"]
    assert (error["ErrorType"], error["Retryable"]) == ("Transfer", 1), "as Retry-After says"


def test_temporary_404_is_retried(plugin, origin):
    plugin.set_retry_timeout(20)
    origin.faults = [ResponseFault(status=404)] * 3
    (ad,) = plugin((f"{origin.url}/data.bin", plugin.folder / "data.bin"))
    assert plugin.exit_code == 0, plugin.stderr
    assert ad["DeveloperData"]["Retries"] >= 3


def test_unknown_host(plugin):
    (ad,) = plugin(("https://no.such.host.invalid/x", plugin.folder / "x"))
    assert plugin.exit_code == 11
    (error,) = ad["TransferErrorData"]
    assert (error["ErrorType"], error["FailedName"]) == ("Resolution", "no.such.host.invalid")


def test_no_new_transfer_after_a_failure(plugin, origin):
    pairs = [(f"{origin.url}/none.bin", plugin.folder / "none.bin")]
    pairs += [(f"{origin.url}/small.txt", plugin.folder / f"{number}.txt") for number in range(20)]
    origin.faults = [None]
    ads = plugin(*pairs)
    assert plugin.exit_code == 1
    assert len(ads) == 21, "one result for each request"
    assert {ad["TransferUrl"] for ad in ads} == {url for url, _ in pairs}
    for ad, (_, path) in zip(ads, pairs, strict=True):
        assert ad["TransferSuccess"] == path.exists()


def test_interrupted_download_resumes(plugin, origin):
    origin.bytes_per_s = 4_000_000
    plugin.set_retry_timeout(60)
    plugin.start((f"{origin.url}/data.bin", plugin.folder / "data.bin"))
    resume_log = plugin.folder / "data.bin.part.resume"
    while not (resume_log.exists() and resume_log.read_bytes().count(b"\n") >= 1 and origin.sent_bytes > 1_500_000):
        assert plugin.process.poll() is None, plugin.process.stderr.read()
    (ad,) = plugin.send_signal()
    assert plugin.exit_code == 11 and ad["TransferRetryable"] is True and "SIGTERM" in ad["TransferError"]
    sent_before = origin.sent_bytes
    (ad,) = plugin((f"{origin.url}/data.bin", plugin.folder / "data.bin"))
    assert plugin.exit_code == 0, plugin.stderr
    assert (plugin.folder / "data.bin").read_bytes() == DATA
    assert origin.sent_bytes - sent_before < len(DATA), "the download started over"


def test_uploads(plugin, origin):
    (plugin.folder / "out.bin").write_bytes(DATA)
    pairs = [(f"{origin.url}/new.bin", plugin.folder / "out.bin"), (f"{origin.url}/x", plugin.folder / "missing")]
    first, second = plugin(*pairs, upload=True)
    assert plugin.exit_code == 1
    assert (origin.folder / "new.bin").read_bytes() == DATA
    assert (first["TransferSuccess"], first["TransferType"], first["TransferTotalBytes"]) == (True, "upload", len(DATA))
    assert second["TransferSuccess"] is False and "does not exist" in second["TransferError"]


def test_job_token(tmp_path, plugin):
    (tmp_path / "creds").mkdir()
    (tmp_path / "creds" / "mine_handle.use").write_text(json.dumps({"access_token": "t0ken-0123"}))
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "secret.txt").write_text("secret\n")
    plugin.environment["_CONDOR_CREDS"] = str(tmp_path / "creds")
    with HttpServer(tmp_path / "served", token="t0ken-0123") as origin:
        url = origin.url + "/secret.txt"
        (refused,) = plugin((url, plugin.folder / "a"))
        assert plugin.exit_code == 1
        assert refused["TransferErrorData"][0]["ErrorType"] == "Authorization"
        (ad,) = plugin((f"mine.handle+{url}", plugin.folder / "b"))
    assert plugin.exit_code == 0, plugin.stderr
    assert (plugin.folder / "b").read_text() == "secret\n"
    assert ad["TransferProtocol"] == "http"
    assert "t0ken-0123" not in plugin.outfile.read_text() + plugin.stderr


def test_federation(tmp_path, plugin):
    (tmp_path / "federation" / "data").mkdir(parents=True)
    claims = base64.urlsafe_b64encode(b'{"iss": "https://localhost"}').decode()
    with Federation(tmp_path / "federation", token=f"e30.{claims}.s") as federation:
        (federation.origin.folder / "data" / "data.bin").write_bytes(DATA)
        plugin.environment.update(SSL_CERT_DIR=str(tmp_path / "none"), X509_CERT_DIR=str(hashed_ca_dir(federation.ca)))
        plugin.environment["BEARER_TOKEN"] = f"e30.{claims}.s"
        (ad,) = plugin((f"pelican://{federation.host}/data/data.bin", plugin.folder / "data.bin"))
        assert plugin.exit_code == 0, plugin.stderr
    assert (plugin.folder / "data.bin").read_bytes() == DATA
    assert ad["TransferProtocol"] == "pelican"
    assert ad["DeveloperData"]["BytesBySource"]


def test_path_outside_every_namespace(tmp_path, plugin):
    (tmp_path / "federation").mkdir()
    with Federation(tmp_path / "federation") as federation:
        plugin.environment["SSL_CERT_FILE"] = str(federation.ca)
        (ad,) = plugin((f"pelican://{federation.host}/elsewhere/x", plugin.folder / "x"))
    assert plugin.exit_code == 1
    assert ad["TransferErrorData"][0]["ErrorType"] == "Specification"
    assert "No namespace found" in ad["TransferError"]


@pytest.mark.xdist_group("s3")
def test_s3_upload_and_download(plugin, s3_server):
    aws_keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    plugin.environment.update(aws_keys, AWS_ENDPOINT_URL=s3_server.endpoint)
    (plugin.folder / "out.bin").write_bytes(DATA)
    url = f"s3://{BUCKET}/plugin//out.bin"
    (ad,) = plugin((url, plugin.folder / "out.bin"), upload=True)
    assert plugin.exit_code == 0, plugin.stderr
    (ad,) = plugin((f"s3://{BUCKET}/plugin/out.bin", plugin.folder / "back.bin"))
    assert plugin.exit_code == 0, plugin.stderr
    assert (plugin.folder / "back.bin").read_bytes() == DATA
    assert ad["TransferProtocol"] == "s3"
    assert SECRET_KEY not in plugin.outfile.read_text() + plugin.stderr


def test_invalid_request_file(plugin):
    (plugin.folder / ".plugin.in").write_text("[ Url = ")
    command = [plugin.program, "-infile", plugin.folder / ".plugin.in", "-outfile", plugin.outfile]
    completed = subprocess.run(command, capture_output=True, text=True)
    assert completed.returncode == 11 and "packtrain:" in completed.stderr
    (ad,) = parse_new_classads(plugin.outfile.read_text())
    assert ad["TransferSuccess"] is False and ad["TransferErrorData"][0]["ErrorType"] == "Parameter"


def test_ads_without_url_are_skipped(plugin, origin):
    ads = [{"PluginData": {"A": 1}}, {"url": f"{origin.url}/small.txt", "localfilename": str(plugin.folder / "s")}]
    (plugin.folder / ".plugin.in").write_text("".join(map(format_new_classad, ads)))
    command = [plugin.program, "-outfile", plugin.outfile, "-infile", plugin.folder / ".plugin.in"]
    subprocess.run(command, check=True)
    (ad,) = parse_new_classads(plugin.outfile.read_text())
    assert get_attribute(ad, "TransferURL") == f"{origin.url}/small.txt"


def test_invalid_arguments(plugin):
    completed = subprocess.run([plugin.program, "-infile", "x"], capture_output=True, text=True)
    assert completed.returncode == 1 and completed.stderr.startswith("packtrain: use:")
