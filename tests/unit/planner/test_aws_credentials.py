"""S3 keys that boto3 finds, for workflows that name none."""

import sys

import pytest

from packtrain import plan
from packtrain.planner.secret_sources import read_secret_sources, resolve_secrets, write_secret_sources

S3 = "input: {s3: {region: r, bucketUrl: 's3://b', path: /p, endpointUrl: 'https://s3.example'%s}}\n"
ACCESS, SECRET, SESSION = plan.Secret("accessKeyId"), plan.Secret("secretAccessKey"), plan.Secret("sessionToken")


def keys_of(made):
    s3 = made.plan.jobs[0].inputs[0].prefix.s3
    return s3.access_key, s3.secret_key, s3.session_token


@pytest.fixture
def environment(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SK")


@pytest.fixture
def profiles(monkeypatch, tmp_path):
    file = tmp_path / "credentials"
    file.write_text(
        "[default]\naws_access_key_id = A1\naws_secret_access_key = S1\n"
        "[lab]\naws_access_key_id = A2\naws_secret_access_key = S2\naws_session_token = T2\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    return file


def test_keys_of_the_environment_become_secrets(planned, environment, tmp_path):
    made = planned(S3 % "")
    assert keys_of(made) == (ACCESS, SECRET, None)
    assert resolve_secrets(made.secrets, tmp_path).values == {"accessKeyId": "AK", "secretAccessKey": "SK"}


def test_a_profile_with_a_session_token(planned, profiles, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_PROFILE", "lab")
    made = planned(S3 % "")
    assert keys_of(made) == (ACCESS, SECRET, SESSION)
    values = resolve_secrets(made.secrets, tmp_path).values
    assert values == {"accessKeyId": "A2", "secretAccessKey": "S2", "sessionToken": "T2"}


def test_keys_of_the_workflow_come_first(planned, environment):
    assert keys_of(planned(S3 % ", accessKeyId: X, secretAccessKey: '${env:Y}'")) == ("X", plan.Secret("Y"), None)


def test_a_resumed_run_reads_them_anew(planned, profiles, tmp_path):
    write_secret_sources(tmp_path / "references", planned(S3 % "").secrets, tmp_path)
    assert "S1" not in (tmp_path / "references").read_text()
    profiles.write_text(profiles.read_text().replace("S1", "renewed"))
    assert resolve_secrets(*read_secret_sources(tmp_path / "references")).values["secretAccessKey"] == "renewed"


def test_without_boto3_requests_are_unsigned(planned, environment, monkeypatch):
    monkeypatch.setenv("AWS_REGION", "makes-it-look-again")
    monkeypatch.setitem(sys.modules, "boto3", None)
    assert keys_of(planned(S3 % "")) == (None, None, None)


def test_a_profile_that_does_not_exist_is_told(planned, profiles, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    made = planned(S3 % "")
    assert keys_of(made) == (None, None, None)
    (problem,) = made.diagnostics
    assert "nobody" in str(problem)
    assert "not signed" in str(problem)


def test_credentials_that_are_gone_are_told(planned, environment, monkeypatch, tmp_path):
    made = planned(S3 % "")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    (first, _) = resolve_secrets(made.secrets, tmp_path).diagnostics
    assert "the accessKeyId of your AWS credentials, which boto3 cannot find" in str(first)


def test_a_name_that_is_no_key_is_told(planned, tmp_path):
    made = planned(S3 % ", accessKeyId: '${aws:user}', secretAccessKey: '${aws:secretAccessKey}'")
    problems = [str(problem) for problem in resolve_secrets(made.secrets, tmp_path).diagnostics]
    assert "${aws:user}, which is none of accessKeyId" in problems[0]
