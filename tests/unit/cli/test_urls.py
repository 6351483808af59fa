"""Where files go, and which address gets the token and the keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from packtrain.cli.ui.credentials import CredentialOptions
from packtrain.cli.ui.download import choose_target_paths
from packtrain.errors import FailedError, UsageError
from packtrain.plan import Secret

HOME = "https://data.example/file"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_targets(here):
    (here / "folder").mkdir()
    assert choose_target_paths(["a", "b"], None, is_folder=False) == [Path("a"), Path("b")]
    assert choose_target_paths(["a"], "other", is_folder=False) == [Path("other")]
    assert choose_target_paths(["a"], "other", is_folder=True) == [Path("other/a")]
    assert choose_target_paths(["a", "b"], "folder", is_folder=False) == [Path("folder/a"), Path("folder/b")]
    assert choose_target_paths(["a"], "new/", is_folder=False) == [Path("new/a")]


@pytest.mark.parametrize(("names", "output", "said"), [(["a", "b"], "x", "-o x/"), (["a", "a"], "x/", "two files")])
def test_targets_that_cannot_be(names, output, said):
    with pytest.raises(UsageError, match=said):
        choose_target_paths(names, output, is_folder=False)


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        (HOME, True),
        ("https://data.example:443/other", True),
        ("http://data.example/file", False),
        ("https://data.example:8443/file", False),
        ("https://mirror.example/file", False),
    ],
)
def test_the_token_goes_to_its_own_host_only(url, sent):
    ref = CredentialOptions(token_env="T").make_location(url, HOME)
    assert (ref.token is not None) is sent


def test_no_token_unless_one_is_named():
    assert CredentialOptions().make_location(HOME, HOME).token is None


def test_a_token_file_is_read_anew_each_time(here):
    access = CredentialOptions(token_file=here / "token")
    token = access.make_location(HOME, HOME).token
    for value in ("first", "second"):
        (here / "token").write_text(f"{value}\n")
        assert access.resolve_secret(token) == value


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"])
def test_a_token_file_that_is_none_is_told(here, content):
    if content is not None:
        (here / "token").write_bytes(content)
    with pytest.raises(FailedError, match="token file") as caught:
        CredentialOptions(token_file=here / "token").resolve_secret(Secret("token"))
    assert caught.value.kind == "secret_missing"


def test_a_variable_that_is_not_set_is_named(monkeypatch):
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    with pytest.raises(FailedError, match="NO_SUCH_TOKEN"):
        CredentialOptions(token_env="NO_SUCH_TOKEN").resolve_secret(Secret("token"))


def test_osdf_paths_are_rooted():
    assert CredentialOptions(token_env="T").make_location("osdf://nrp/x", "osdf://nrp/x").url == "osdf:///nrp/x"


@pytest.mark.parametrize("url", ["data.tar", "/tmp/data.tar", "ftp://host/x", "host:80/x"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(UsageError):
        CredentialOptions().make_location(url, url)


def test_s3_from_options_and_environment(monkeypatch):
    plain = CredentialOptions().make_location("s3://bucket/key", "s3://bucket/key").s3
    assert (plain.region, plain.endpoint, plain.access_key) == (
        "us-east-1", "https://s3.us-east-1.amazonaws.com", None,
    )  # fmt: skip
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SK")
    access = CredentialOptions(region="eu-1", endpoint="http://127.0.0.1:1/")
    s3 = access.make_location("s3://bucket/key", "s3://bucket/key").s3
    assert (s3.region, s3.endpoint) == ("eu-1", "http://127.0.0.1:1")
    assert [access.resolve_secret(text) for text in (s3.access_key, s3.secret_key)] == ["AK", "SK"]


def test_s3_keys_of_a_profile(here, monkeypatch):
    (here / "credentials").write_text("[default]\naws_access_key_id = PAK\naws_secret_access_key = PSK\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(here / "credentials"))
    access = CredentialOptions()
    s3 = access.make_location("s3://bucket/key", "s3://bucket/key").s3
    assert [access.resolve_secret(text) for text in (s3.access_key, s3.secret_key)] == ["PAK", "PSK"]
    assert s3.session_token is None
