"""Target paths of downloads, and which URLs get the token and the S3 keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from packtrain.data.credentials import CredentialOptions
from packtrain.data.download import choose_target_paths
from packtrain.errors import FailedError, UsageError
from packtrain.plan import Secret

HOME = "https://data.example/file"


@pytest.fixture(autouse=True)
def workdir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_targets(workdir):
    (workdir / "folder").mkdir()
    assert choose_target_paths(["a", "b"], None, is_folder=False) == [Path("a"), Path("b")]
    assert choose_target_paths(["a"], "other", is_folder=False) == [Path("other")]
    assert choose_target_paths(["a"], "other", is_folder=True) == [Path("other/a")]
    assert choose_target_paths(["a", "b"], "folder", is_folder=False) == [Path("folder/a"), Path("folder/b")]
    assert choose_target_paths(["a"], "new/", is_folder=False) == [Path("new/a")]


@pytest.mark.parametrize(
    ("names", "output", "message"),
    [(["a", "b"], "x", "several files need a folder: write it as x/"), (["a", "a"], "x/", "two files")],
)
def test_invalid_targets(names, output, message):
    with pytest.raises(UsageError, match=message):
        choose_target_paths(names, output, is_folder=False)


@pytest.mark.parametrize(
    ("url", "gets_token"),
    [
        (HOME, True),
        ("https://data.example:443/other", True),
        ("http://data.example/file", False),
        ("https://data.example:8443/file", False),
        ("https://mirror.example/file", False),
    ],
)
def test_token_is_for_one_origin(url, gets_token):
    location = CredentialOptions(token_env="T").make_location(url, HOME)
    assert (location.token is not None) is gets_token


def test_no_token_by_default():
    assert CredentialOptions().make_location(HOME, HOME).token is None


def test_token_file_is_read_on_every_use(workdir):
    credentials = CredentialOptions(token_file=workdir / "token")
    token = credentials.make_location(HOME, HOME).token
    for value in ("first", "second"):
        (workdir / "token").write_text(f"{value}\n")
        assert credentials.resolve_secret(token) == value


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"])
def test_invalid_token_file(workdir, content):
    if content is not None:
        (workdir / "token").write_bytes(content)
    with pytest.raises(FailedError, match="token file") as caught:
        CredentialOptions(token_file=workdir / "token").resolve_secret(Secret("token"))
    assert caught.value.kind == "secret_missing"


def test_unset_variable_is_named(monkeypatch):
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    with pytest.raises(FailedError, match="NO_SUCH_TOKEN"):
        CredentialOptions(token_env="NO_SUCH_TOKEN").resolve_secret(Secret("token"))


def test_osdf_paths_are_rooted():
    assert CredentialOptions(token_env="T").make_location("osdf://nrp/x", "osdf://nrp/x").url == "osdf:///nrp/x"


@pytest.mark.parametrize("url", ["data.tar", "/tmp/data.tar", "ftp://host/x", "host:80/x"])
def test_invalid_urls(url):
    with pytest.raises(UsageError):
        CredentialOptions().make_location(url, url)


def test_s3_from_options_and_environment(monkeypatch):
    plain = CredentialOptions().make_location("s3://bucket/key", "s3://bucket/key").s3
    assert (plain.region, plain.endpoint, plain.access_key) == (
        "us-east-1", "https://s3.us-east-1.amazonaws.com", None,
    )  # fmt: skip
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SK")
    credentials = CredentialOptions(region="eu-1", endpoint="http://127.0.0.1:1/")
    s3 = credentials.make_location("s3://bucket/key", "s3://bucket/key").s3
    assert (s3.region, s3.endpoint) == ("eu-1", "http://127.0.0.1:1")
    assert [credentials.resolve_secret(text) for text in (s3.access_key, s3.secret_key)] == ["AK", "SK"]


def test_s3_keys_from_profile(workdir, monkeypatch):
    (workdir / "credentials").write_text("[default]\naws_access_key_id = PAK\naws_secret_access_key = PSK\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(workdir / "credentials"))
    credentials = CredentialOptions()
    s3 = credentials.make_location("s3://bucket/key", "s3://bucket/key").s3
    assert [credentials.resolve_secret(text) for text in (s3.access_key, s3.secret_key)] == ["PAK", "PSK"]
    assert s3.session_token is None
