"""URLs in submit files and the credentials that belong to them."""

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


def test_plain_url_has_no_token(creds):
    location = JobCredentials(creds).location_from_url("HTTPS://host/a%20b?x=1")
    assert (location.url, location.token) == ("https://host/a%20b?x=1", None)


@pytest.mark.parametrize(("name", "token"), [("chtc.mine", "t0ken"), ("scitokens", "j.w.t")])
def test_credential_name_before_the_scheme(creds, name, token):
    credentials = JobCredentials(creds)
    location = credentials.location_from_url(f"{name}+osdf:///a/b")
    assert location.url == "osdf:///a/b"
    assert credentials.resolve_secret(location.token) == token


def test_renewed_credential_is_read(creds, tmp_path):
    credentials = JobCredentials(creds)
    location = credentials.location_from_url("chtc.mine+https://host/x")
    credentials.resolve_secret(location.token)
    (tmp_path / "chtc_mine.use").write_text("renewed")
    assert credentials.resolve_secret(location.token) == "renewed"


def test_missing_credential(creds):
    credentials = JobCredentials(creds)
    with pytest.raises(FailedError, match="use_oauth_services") as error:
        credentials.resolve_secret(credentials.location_from_url("none+https://host/x").token)
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
def test_s3_url_forms(url, bucket_url, endpoint, region):
    location = JobCredentials({}).location_from_url(url)
    assert (location.url, location.s3.endpoint, location.s3.region, location.s3.access_key) == (
        bucket_url,
        endpoint,
        region,
        None,
    )


def test_s3_keys(creds):
    credentials = JobCredentials({**creds, "AWS_ACCESS_KEY_ID": "EK", "AWS_SECRET_ACCESS_KEY": "ES"})
    from_environment = credentials.location_from_url("s3://data/a").s3
    assert (
        credentials.resolve_secret(from_environment.access_key),
        credentials.resolve_secret(from_environment.secret_key),
        from_environment.session_token,
    ) == (
        "EK",
        "ES",
        None,
    )
    from_credential = credentials.location_from_url("store+s3://data/a").s3
    assert (
        credentials.resolve_secret(from_credential.access_key),
        credentials.resolve_secret(from_credential.secret_key),
    ) == ("AK", "SK")


@pytest.mark.parametrize("url", ["ftp://host/x", "nothing", "file:///etc/passwd", ""])
def test_other_urls_are_rejected(url):
    with pytest.raises(FailedError) as error:
        JobCredentials({}).location_from_url(url)
    assert error.value.kind == "unsupported"
