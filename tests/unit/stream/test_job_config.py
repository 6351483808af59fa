"""What a program finds of the input that it is to stream."""

import pytest

from packtrain.errors import FailedError, FormatError, UsageError
from packtrain.plan import Location, S3Access, Secret
from packtrain.plan.stream_config import StreamConfig
from packtrain.stream.job_config import open_job_stream
from tests.support.stream_indexes import make_archive


@pytest.fixture
def told(tmp_path):
    index = make_archive(tmp_path, 20)
    token = Location("https://a/t.tar", token=Secret("token"))
    keys = Location("s3://b/t.tar", s3=S3Access("r", "https://e", Secret("id"), Secret("key")))
    return StreamConfig(str(index.path), ((token, keys),), str(tmp_path / "secrets"), str(tmp_path / "keep"), 5000)


def test_the_variable_names_it(told, tmp_path):
    told.write(tmp_path / "data.packtrain-stream")
    index, settings = open_job_stream(environ={"PACKTRAIN_STREAM": str(tmp_path / "data.packtrain-stream")})
    assert len(index) == 20
    assert settings.archive_sources == told.archives
    assert (settings.cache_dir, settings.cache_limit_bytes) == (tmp_path / "keep", 5000)


def test_a_plain_index_will_do(told):
    index, settings = open_job_stream(told.index_path, {})
    assert len(index) == 20 and settings.archive_sources == () and settings.cache_dir is None


def test_a_secret_is_read_each_time(told, tmp_path):
    told.write(tmp_path / "x.packtrain-stream")
    reveal = open_job_stream(tmp_path / "x.packtrain-stream")[1].resolve_secret
    (tmp_path / "secrets").mkdir()
    for value in ("old", "renewed"):
        (tmp_path / "secrets" / "token").write_text(f"{value}\n")
        assert reveal(Secret("token")) == value
    assert reveal("plain") == "plain"
    with pytest.raises(FailedError, match="the secret 'key' cannot be read"):
        reveal(Secret("key"))


def test_nothing_is_given():
    with pytest.raises(UsageError, match="there is nothing to stream: name an index"):
        open_job_stream(environ={})
    names = {"PACKTRAIN_STREAM_VAL": "x", "PACKTRAIN_STREAM_TRAIN": "y"}
    with pytest.raises(UsageError, match="one of those in PACKTRAIN_STREAM_TRAIN and PACKTRAIN_STREAM_VAL"):
        open_job_stream(environ=names)


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "is no JSON"), ('{"version": 9}', "has version 9"), ('{"version": 1}', "index"), ("[]", "packtrain-stream")],
)
def test_what_is_broken_is_told(tmp_path, text, says):
    path = tmp_path / "x.packtrain-stream"
    path.write_text(text)
    with pytest.raises(FormatError, match=says):
        open_job_stream(path)
