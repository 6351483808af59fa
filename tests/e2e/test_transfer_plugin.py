"""The transfer plugin as a program, against real servers, with their faults."""

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


def hashed(authority):
    """A folder as OpenSSL looks into it."""
    command = ["openssl", "x509", "-noout", "-hash", "-in", str(authority)]
    name = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    folder = authority.parent / "hashed"
    folder.mkdir()
    (folder / f"{name}.0").write_text(authority.read_text())
    return folder


@pytest.fixture
def plugin(tmp_path):
    (tmp_path / "box").mkdir()
    return PluginRun(tmp_path / "box")


def test_the_command_writes_it(tmp_path):
    command = [sys.executable, "-m", "packtrain", "plugin", "-o"]
    said = subprocess.run([*command, tmp_path, "--json"], capture_output=True, text=True, check=True).stdout
    assert json.loads(said)["plugin"] == str(tmp_path / "packtrain-plugin.pyz")
    assert os.access(tmp_path / "packtrain-plugin.pyz", os.X_OK)
    wrong = subprocess.run([*command, tmp_path / "none" / "x"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "cannot be written" in wrong.stderr


def test_what_it_can_do(plugin):
    said = subprocess.run([plugin.program, "-classad"], capture_output=True, text=True, check=True).stdout
    ad = parse_old_classad(said)
    assert ad["MultipleFileSupport"] is True and ad["PluginType"] == "FileTransfer" and ad["ProtocolVersion"] == 2
    assert ad["SupportedMethods"] == "osdf,pelican,http,https,s3"


def test_files_come_and_are_accounted_for(plugin, origin):
    box = plugin.folder
    first, second = plugin((f"{origin.url}/data.bin", box / "data.bin"), (f"{origin.url}/small.txt", box / "renamed"))
    assert plugin.code == 0, plugin.stderr
    assert (box / "data.bin").read_bytes() == DATA
    assert (box / "renamed").read_text() == "small\n"
    assert first["TransferSuccess"] is True
    assert first["TransferTotalBytes"] == first["TransferFileBytes"] == len(DATA)
    assert (first["TransferUrl"], first["TransferFileName"]) == (f"{origin.url}/data.bin", str(box / "data.bin"))
    assert (first["TransferType"], first["TransferProtocol"]) == ("download", "http")
    assert first["TransferEndTime"] >= first["TransferStartTime"] > 0
    assert first["ConnectionTimeSeconds"] >= 0
    assert first["TransferHostName"].startswith("127.0.0.1")
    assert first["DeveloperData"]["Retries"] == 0
    assert second["TransferTotalBytes"] == 6
    assert not list(box.glob("*.part*"))


def test_a_missing_object_is_not_retryable(plugin, origin):
    (ad,) = plugin((f"{origin.url}/none.bin", plugin.folder / "none.bin"))
    assert plugin.code == 1
    assert (ad["TransferSuccess"], ad["TransferRetryable"]) == (False, False)
    assert "answered 404" in ad["TransferError"]
    (error,) = ad["TransferErrorData"]
    assert (error["ErrorType"], error["Retryable"], error["ErrorCode"]) == ("Specification", -1, 30)
    assert error["FailedServer"].startswith("127.0.0.1")
    assert "answered 404" in plugin.stderr


def test_a_service_that_is_down_is_retryable(plugin, origin):
    origin.faults = [ResponseFault(status=503, headers={"Retry-After": "1"})] * 1000
    (ad,) = plugin((f"{origin.url}/data.bin", plugin.folder / "data.bin"))
    assert plugin.code == 11
    assert ad["TransferRetryable"] is True
    (error,) = ad["TransferErrorData"]
    assert error["ErrorType"] == "Transfer" and error["Retryable"] >= 0


def test_a_404_for_a_while_is_waited_out(plugin, origin):
    plugin.patience(20)
    origin.faults = [ResponseFault(status=404)] * 3
    (ad,) = plugin((f"{origin.url}/data.bin", plugin.folder / "data.bin"))
    assert plugin.code == 0, plugin.stderr
    assert ad["DeveloperData"]["Retries"] >= 3


def test_a_host_that_does_not_exist(plugin):
    (ad,) = plugin(("https://no.such.host.invalid/x", plugin.folder / "x"))
    assert plugin.code == 11
    (error,) = ad["TransferErrorData"]
    assert (error["ErrorType"], error["FailedName"]) == ("Resolution", "no.such.host.invalid")


def test_behind_one_that_does_not_come_no_other_is_begun(plugin, origin):
    pairs = [(f"{origin.url}/none.bin", plugin.folder / "none.bin")]
    pairs += [(f"{origin.url}/small.txt", plugin.folder / f"{number}.txt") for number in range(20)]
    origin.faults = [None]
    ads = plugin(*pairs)
    assert plugin.code == 1
    assert len(ads) == 21, "one answer for each"
    assert {ad["TransferUrl"] for ad in ads} == {url for url, _ in pairs}
    for ad, (_, path) in zip(ads, pairs, strict=True):
        assert ad["TransferSuccess"] == path.exists()


def test_what_was_begun_is_gone_on_with(plugin, origin):
    origin.bytes_per_s = 4_000_000
    plugin.patience(60)
    plugin.start((f"{origin.url}/data.bin", plugin.folder / "data.bin"))
    ledger = plugin.folder / "data.bin.part.resume"
    while not (ledger.exists() and ledger.read_bytes().count(b"\n") >= 1 and origin.sent_bytes > 1_500_000):
        assert plugin.process.poll() is None, plugin.process.stderr.read()
    (ad,) = plugin.end()
    assert plugin.code == 11 and ad["TransferRetryable"] is True and "SIGTERM" in ad["TransferError"]
    before = origin.sent_bytes
    (ad,) = plugin((f"{origin.url}/data.bin", plugin.folder / "data.bin"))
    assert plugin.code == 0, plugin.stderr
    assert (plugin.folder / "data.bin").read_bytes() == DATA
    assert origin.sent_bytes - before < len(DATA), "not from its beginning"


def test_uploads(plugin, origin):
    (plugin.folder / "out.bin").write_bytes(DATA)
    pairs = [(f"{origin.url}/new.bin", plugin.folder / "out.bin"), (f"{origin.url}/x", plugin.folder / "missing")]
    first, second = plugin(*pairs, upload=True)
    assert plugin.code == 1
    assert (origin.folder / "new.bin").read_bytes() == DATA
    assert (first["TransferSuccess"], first["TransferType"], first["TransferTotalBytes"]) == (True, "upload", len(DATA))
    assert second["TransferSuccess"] is False and "does not exist" in second["TransferError"]


def test_a_token_of_the_job(tmp_path, plugin):
    (tmp_path / "creds").mkdir()
    (tmp_path / "creds" / "mine_handle.use").write_text(json.dumps({"access_token": "t0ken-0123"}))
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "secret.txt").write_text("secret\n")
    plugin.environment["_CONDOR_CREDS"] = str(tmp_path / "creds")
    with HttpServer(tmp_path / "served", token="t0ken-0123") as origin:
        url = origin.url + "/secret.txt"
        (refused,) = plugin((url, plugin.folder / "a"))
        assert plugin.code == 1
        assert refused["TransferErrorData"][0]["ErrorType"] == "Authorization"
        (ad,) = plugin((f"mine.handle+{url}", plugin.folder / "b"))
    assert plugin.code == 0, plugin.stderr
    assert (plugin.folder / "b").read_text() == "secret\n"
    assert ad["TransferProtocol"] == "http"
    assert "t0ken-0123" not in plugin.outfile.read_text() + plugin.stderr


def test_a_federation(tmp_path, plugin):
    (tmp_path / "federation" / "data").mkdir(parents=True)
    claims = base64.urlsafe_b64encode(b'{"iss": "https://localhost"}').decode()
    with Federation(tmp_path / "federation", token=f"e30.{claims}.s") as federation:
        (federation.origin.folder / "data" / "data.bin").write_bytes(DATA)
        plugin.environment.update(SSL_CERT_DIR=str(tmp_path / "none"), X509_CERT_DIR=str(hashed(federation.ca)))
        plugin.environment["BEARER_TOKEN"] = f"e30.{claims}.s"
        (ad,) = plugin((f"pelican://{federation.host}/data/data.bin", plugin.folder / "data.bin"))
        assert plugin.code == 0, plugin.stderr
    assert (plugin.folder / "data.bin").read_bytes() == DATA
    assert ad["TransferProtocol"] == "pelican"
    assert ad["DeveloperData"]["BytesBySource"]


def test_a_federation_that_does_not_know_it(tmp_path, plugin):
    (tmp_path / "federation").mkdir()
    with Federation(tmp_path / "federation") as federation:
        plugin.environment["SSL_CERT_FILE"] = str(federation.ca)
        (ad,) = plugin((f"pelican://{federation.host}/elsewhere/x", plugin.folder / "x"))
    assert plugin.code == 1
    assert ad["TransferErrorData"][0]["ErrorType"] == "Specification"
    assert "No namespace found" in ad["TransferError"]


@pytest.mark.xdist_group("s3")
def test_s3_up_and_down(plugin, s3_server):
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    plugin.environment.update(keys, AWS_ENDPOINT_URL=s3_server.endpoint)
    (plugin.folder / "out.bin").write_bytes(DATA)
    url = f"s3://{BUCKET}/plugin//out.bin"
    (ad,) = plugin((url, plugin.folder / "out.bin"), upload=True)
    assert plugin.code == 0, plugin.stderr
    (ad,) = plugin((f"s3://{BUCKET}/plugin/out.bin", plugin.folder / "back.bin"))
    assert plugin.code == 0, plugin.stderr
    assert (plugin.folder / "back.bin").read_bytes() == DATA
    assert ad["TransferProtocol"] == "s3"
    assert SECRET_KEY not in plugin.outfile.read_text() + plugin.stderr


def test_what_is_asked_wrongly_is_answered(plugin):
    (plugin.folder / ".plugin.in").write_text("[ Url = ")
    command = [plugin.program, "-infile", plugin.folder / ".plugin.in", "-outfile", plugin.outfile]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 11 and "packtrain:" in done.stderr
    (ad,) = parse_new_classads(plugin.outfile.read_text())
    assert ad["TransferSuccess"] is False and ad["TransferErrorData"][0]["ErrorType"] == "Parameter"


def test_ads_that_speak_of_no_file_are_skipped(plugin, origin):
    ads = [{"PluginData": {"A": 1}}, {"url": f"{origin.url}/small.txt", "localfilename": str(plugin.folder / "s")}]
    (plugin.folder / ".plugin.in").write_text("".join(map(format_new_classad, ads)))
    command = [plugin.program, "-outfile", plugin.outfile, "-infile", plugin.folder / ".plugin.in"]
    subprocess.run(command, check=True)
    (ad,) = parse_new_classads(plugin.outfile.read_text())
    assert get_attribute(ad, "TransferURL") == f"{origin.url}/small.txt"


def test_a_wrong_call(plugin):
    done = subprocess.run([plugin.program, "-infile", "x"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("packtrain: use:")
