"""What a program finds of the input that it is to stream."""

import pytest

from packtrain.errors import FailedError, FormatError, UsageError
from packtrain.plan import Ref, S3Access, Secret
from packtrain.plan.stream_config import Given
from packtrain.stream.job_config import given
from tests.support.stream_indexes import archive_of


@pytest.fixture
def told(tmp_path):
    index = archive_of(tmp_path, 20)
    token = Ref("https://a/t.tar", token=Secret("token"))
    keys = Ref("s3://b/t.tar", s3=S3Access("r", "https://e", Secret("id"), Secret("key")))
    return Given(str(index.path), ((token, keys),), str(tmp_path / "secrets"), str(tmp_path / "keep"), 5000)


def test_the_variable_names_it(told, tmp_path):
    told.write(tmp_path / "data.packtrain-stream")
    index, settings = given(environ={"PACKTRAIN_STREAM": str(tmp_path / "data.packtrain-stream")})
    assert len(index) == 20
    assert settings.archives == told.archives
    assert (settings.keep, settings.keep_bytes) == (tmp_path / "keep", 5000)


def test_a_plain_index_will_do(told):
    index, settings = given(told.index, {})
    assert len(index) == 20 and settings.archives == () and settings.keep is None


def test_a_secret_is_read_each_time(told, tmp_path):
    told.write(tmp_path / "x.packtrain-stream")
    reveal = given(tmp_path / "x.packtrain-stream")[1].reveal
    (tmp_path / "secrets").mkdir()
    for value in ("old", "renewed"):
        (tmp_path / "secrets" / "token").write_text(f"{value}\n")
        assert reveal(Secret("token")) == value
    assert reveal("plain") == "plain"
    with pytest.raises(FailedError, match="the secret 'key' cannot be read"):
        reveal(Secret("key"))


def test_nothing_is_given():
    with pytest.raises(UsageError, match="there is nothing to stream: name an index"):
        given(environ={})
    names = {"PACKTRAIN_STREAM_VAL": "x", "PACKTRAIN_STREAM_TRAIN": "y"}
    with pytest.raises(UsageError, match="one of those in PACKTRAIN_STREAM_TRAIN and PACKTRAIN_STREAM_VAL"):
        given(environ=names)


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "is no JSON"), ('{"version": 9}', "has version 9"), ('{"version": 1}', "index"), ("[]", "packtrain-stream")],
)
def test_what_is_broken_is_told(tmp_path, text, says):
    path = tmp_path / "x.packtrain-stream"
    path.write_text(text)
    with pytest.raises(FormatError, match=says):
        given(path)
