"""S3 keys that boto3 finds, for workflows without keys."""

import sys

import pytest

from packtrain import plan
from packtrain.planner.credentials.secret_sources import read_secret_sources, resolve_secrets, write_secret_sources

S3 = "input: {s3: {region: r, bucketUrl: 's3://b', path: /p, endpointUrl: 'https://s3.example'%s}}\n"
ACCESS, SECRET, SESSION = plan.Secret("accessKeyId"), plan.Secret("secretAccessKey"), plan.Secret("sessionToken")


def s3_keys(result):
    s3 = result.plan.jobs[0].inputs[0].prefix.s3
    return s3.access_key, s3.secret_key, s3.session_token


@pytest.fixture
def aws_environment(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SK")


@pytest.fixture
def aws_profiles(monkeypatch, tmp_path):
    file = tmp_path / "credentials"
    file.write_text(
        "[default]\naws_access_key_id = A1\naws_secret_access_key = S1\n"
        "[lab]\naws_access_key_id = A2\naws_secret_access_key = S2\naws_session_token = T2\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    return file


def test_environment_keys(plan_workflow, aws_environment, tmp_path):
    result = plan_workflow(S3 % "")
    assert s3_keys(result) == (ACCESS, SECRET, None)
    assert resolve_secrets(result.secrets, tmp_path).values == {"accessKeyId": "AK", "secretAccessKey": "SK"}


def test_profile_with_session_token(plan_workflow, aws_profiles, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_PROFILE", "lab")
    result = plan_workflow(S3 % "")
    assert s3_keys(result) == (ACCESS, SECRET, SESSION)
    values = resolve_secrets(result.secrets, tmp_path).values
    assert values == {"accessKeyId": "A2", "secretAccessKey": "S2", "sessionToken": "T2"}


def test_workflow_keys_take_precedence(plan_workflow, aws_environment):
    assert s3_keys(plan_workflow(S3 % ", accessKeyId: X, secretAccessKey: '${env:Y}'")) == ("X", plan.Secret("Y"), None)


def test_resumed_run_reads_keys_again(plan_workflow, aws_profiles, tmp_path):
    write_secret_sources(tmp_path / "references", plan_workflow(S3 % "").secrets, tmp_path)
    assert "S1" not in (tmp_path / "references").read_text()
    aws_profiles.write_text(aws_profiles.read_text().replace("S1", "renewed"))
    assert resolve_secrets(*read_secret_sources(tmp_path / "references")).values["secretAccessKey"] == "renewed"


def test_without_boto3(plan_workflow, aws_environment, monkeypatch):
    monkeypatch.setenv("AWS_REGION", "invalidates-cached-credentials")
    monkeypatch.setitem(sys.modules, "boto3", None)
    assert s3_keys(plan_workflow(S3 % "")) == (None, None, None)


def test_missing_profile(plan_workflow, aws_profiles, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "missing")
    result = plan_workflow(S3 % "")
    assert s3_keys(result) == (None, None, None)
    (diagnostic,) = result.diagnostics
    assert "missing" in str(diagnostic)
    assert "not signed" in str(diagnostic)


def test_credentials_removed(plan_workflow, aws_environment, monkeypatch, tmp_path):
    result = plan_workflow(S3 % "")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    (diagnostic, _) = resolve_secrets(result.secrets, tmp_path).diagnostics
    assert "the accessKeyId of your AWS credentials, which boto3 cannot find" in str(diagnostic)


def test_unknown_key_name(plan_workflow, tmp_path):
    result = plan_workflow(S3 % ", accessKeyId: '${aws:user}', secretAccessKey: '${aws:secretAccessKey}'")
    messages = [str(diagnostic) for diagnostic in resolve_secrets(result.secrets, tmp_path).diagnostics]
    assert "${aws:user}, which is none of accessKeyId" in messages[0]
