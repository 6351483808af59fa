"""Addresses of submit files, and the credentials that belong to them."""

import json

import pytest

from packtrain.errors import FailedError
from packtrain.plugin.job_credentials import JobCredentials


@pytest.fixture
def creds(tmp_path):
    (tmp_path / "chtc_mine.use").write_text("t0ken\n")
    (tmp_path / "scitokens.use").write_text(json.dumps({"access_token": "j.w.t", "expires_in": 1}))
    (tmp_path / "store.use").write_text(json.dumps({"access_key_id": "AK", "secret_access_key": "SK"}))
    return {"_CONDOR_CREDS": str(tmp_path)}


def test_a_plain_address_has_no_token(creds):
    ref = JobCredentials(creds).location_from_url("HTTPS://host/a%20b?x=1")
    assert (ref.url, ref.token) == ("https://host/a%20b?x=1", None)


@pytest.mark.parametrize(("name", "token"), [("chtc.mine", "t0ken"), ("scitokens", "j.w.t")])
def test_a_name_before_the_scheme_is_that_of_a_credential(creds, name, token):
    access = JobCredentials(creds)
    ref = access.location_from_url(f"{name}+osdf:///a/b")
    assert ref.url == "osdf:///a/b"
    assert access.resolve_secret(ref.token) == token


def test_a_credential_is_read_anew(creds, tmp_path):
    access = JobCredentials(creds)
    ref = access.location_from_url("chtc.mine+https://host/x")
    access.resolve_secret(ref.token)
    (tmp_path / "chtc_mine.use").write_text("renewed")
    assert access.resolve_secret(ref.token) == "renewed"


def test_one_that_is_not_there_is_said(creds):
    access = JobCredentials(creds)
    with pytest.raises(FailedError, match="use_oauth_services") as error:
        access.resolve_secret(access.location_from_url("none+https://host/x").token)
    assert error.value.kind == "secret_missing"


@pytest.mark.parametrize(
    ("url", "bucket_url", "endpoint", "region"),
    [
        ("s3://data/a/b", "s3://data/a/b", "https://s3.us-east-1.amazonaws.com", "us-east-1"),
        ("s3://data.s3.eu-west-1.amazonaws.com/a", "s3://data/a", "https://s3.eu-west-1.amazonaws.com", "eu-west-1"),
        ("s3://s3.eu-west-1.amazonaws.com/data/a", "s3://data/a", "https://s3.eu-west-1.amazonaws.com", "eu-west-1"),
        ("s3://store.example.org/data/a/b", "s3://data/a/b", "https://store.example.org", "us-east-1"),
        ("s3://store.example.org:9000/data/a", "s3://data/a", "https://store.example.org:9000", "us-east-1"),
    ],
)
def test_the_forms_of_s3(url, bucket_url, endpoint, region):
    ref = JobCredentials({}).location_from_url(url)
    assert (ref.url, ref.s3.endpoint, ref.s3.region, ref.s3.access_key) == (bucket_url, endpoint, region, None)


def test_keys_of_s3_come_from_the_environment_or_a_credential(creds):
    access = JobCredentials({**creds, "AWS_ACCESS_KEY_ID": "EK", "AWS_SECRET_ACCESS_KEY": "ES"})
    own = access.location_from_url("s3://data/a").s3
    assert (access.resolve_secret(own.access_key), access.resolve_secret(own.secret_key), own.session_token) == (
        "EK",
        "ES",
        None,
    )
    given = access.location_from_url("store+s3://data/a").s3
    assert (access.resolve_secret(given.access_key), access.resolve_secret(given.secret_key)) == ("AK", "SK")


@pytest.mark.parametrize("url", ["ftp://host/x", "nothing", "file:///etc/passwd", ""])
def test_others_are_refused(url):
    with pytest.raises(FailedError) as error:
        JobCredentials({}).location_from_url(url)
    assert error.value.kind == "unsupported"
