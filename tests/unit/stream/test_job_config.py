"""Tests of opening the streamed input of a job."""

import pytest

from packtrain.errors import FailedError, FormatError, UsageError
from packtrain.plan import Location, S3Access, Secret
from packtrain.plan.stream_config import StreamConfig
from packtrain.stream.job_config import open_job_stream
from tests.support.stream_indexes import make_archive


@pytest.fixture
def config(tmp_path):
    index = make_archive(tmp_path, 20)
    token = Location("https://a/t.tar", token=Secret("token"))
    keys = Location("s3://b/t.tar", s3=S3Access("r", "https://e", Secret("id"), Secret("key")))
    return StreamConfig(str(index.path), ((token, keys),), str(tmp_path / "secrets"), str(tmp_path / "cache"), 5000)


def test_variable_names_the_config(config, tmp_path):
    config.write(tmp_path / "data.packtrain-stream")
    index, settings = open_job_stream(environ={"PACKTRAIN_STREAM": str(tmp_path / "data.packtrain-stream")})
    assert len(index) == 20
    assert settings.archive_sources == config.archives
    assert (settings.cache_dir, settings.cache_limit_bytes) == (tmp_path / "cache", 5000)


def test_plain_index(config):
    index, settings = open_job_stream(config.index_path, {})
    assert len(index) == 20 and settings.archive_sources == () and settings.cache_dir is None


def test_secret_is_read_each_time(config, tmp_path):
    config.write(tmp_path / "x.packtrain-stream")
    resolve_secret = open_job_stream(tmp_path / "x.packtrain-stream")[1].resolve_secret
    (tmp_path / "secrets").mkdir()
    for value in ("old", "renewed"):
        (tmp_path / "secrets" / "token").write_text(f"{value}\n")
        assert resolve_secret(Secret("token")) == value
    assert resolve_secret("plain") == "plain"
    with pytest.raises(FailedError, match="the secret 'key' cannot be read"):
        resolve_secret(Secret("key"))


def test_nothing_to_stream():
    with pytest.raises(UsageError, match="there is nothing to stream: pass the path of an index"):
        open_job_stream(environ={})
    names = {"PACKTRAIN_STREAM_VAL": "x", "PACKTRAIN_STREAM_TRAIN": "y"}
    with pytest.raises(UsageError, match="pass the path in PACKTRAIN_STREAM_TRAIN or PACKTRAIN_STREAM_VAL"):
        open_job_stream(environ=names)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ('{"version": 9}', "has version 9"),
        ('{"version": 2}', "index"),
        ("[]", "packtrain-stream"),
    ],
)
def test_damaged_config(tmp_path, text, message):
    path = tmp_path / "x.packtrain-stream"
    path.write_text(text)
    with pytest.raises(FormatError, match=message):
        open_job_stream(path)
