"""The Chirp client, against a fake proxy."""

import pytest

from packtrain.agent.live.chirp import MAX_REQUEST_BYTES, ChirpClient, ChirpError, escape_argument, find_config
from tests.support.chirp_proxy import ChirpProxy


@pytest.fixture
def proxy(tmp_path):
    with ChirpProxy(tmp_path) as proxy:
        yield proxy


def test_attributes_and_log_lines(proxy):
    client = ChirpClient(proxy.config_path, 5)
    client.set_attribute("PacktrainStage", '"fetch"')
    client.set_delayed_attribute("ChirpX", "1 + 1")
    client.log('packtrain {"text": "a\\\\b\tc"}')
    client.close()
    assert proxy.attributes == {"PacktrainStage": '"fetch"', "ChirpX": "1 + 1"}
    assert proxy.log_lines == ['packtrain {"text": "a\\\\b\tc"}']


@pytest.mark.parametrize("text", ["", "  ", "a b", "back\\slash\\", "line\nline\r\n\n", "tab\tü ✓ \x0b\x0c", "\\n \\ "])
def test_any_text_is_logged_unchanged(proxy, text):
    client = ChirpClient(proxy.config_path, 5)
    client.log(f"<{text}>")
    client.close()
    assert proxy.log_lines == [f"<{text}>"]


@pytest.mark.parametrize("text", ["line\n", "\\n", "\\\\", "\x00"])
def test_unsafe_value_is_not_sent(proxy, text):
    """Such a value could hang the job."""
    client = ChirpClient(proxy.config_path, 5)
    for set_attribute in (client.set_attribute, client.set_delayed_attribute):
        with pytest.raises(ChirpError):
            set_attribute("A", f'"{text}"')
    client.set_attribute("B", '"a \\"quoted\\" ü"')
    client.close()
    assert proxy.attributes == {"B": '"a \\"quoted\\" ü"'}


def test_wrong_cookie(proxy):
    proxy.config_path.write_text(proxy.config_path.read_text().replace("c0ffee", "wrong"))
    with pytest.raises(ChirpError) as error:
        ChirpClient(proxy.config_path, 5)
    assert not error.value.is_permanent


def test_unsupported_request_is_a_permanent_error(proxy):
    proxy.supported_commands.remove("set_job_attr")
    client = ChirpClient(proxy.config_path, 5)
    with pytest.raises(ChirpError) as error:
        client.set_attribute("A", "1")
    assert error.value.is_permanent
    client.log("the connection still works")
    client.close()
    assert proxy.log_lines == ["the connection still works"]


def test_too_long_request_is_not_sent(proxy):
    client = ChirpClient(proxy.config_path, 5)
    with pytest.raises(ChirpError) as error:
        client.set_attribute("A", "x" * MAX_REQUEST_BYTES)
    assert not error.value.is_permanent
    client.close()
    assert proxy.attributes == {}


def test_silent_proxy_times_out(proxy):
    proxy.is_responding.clear()
    with pytest.raises(OSError, match="timed out"):
        ChirpClient(proxy.config_path, 0.05)


def test_stopped_proxy(proxy, tmp_path):
    proxy.__exit__()
    with pytest.raises(ConnectionError):
        ChirpClient(proxy.config_path, 5)
    proxy.__enter__()


@pytest.mark.parametrize("text", ["", "host", "host port cookie"])
def test_invalid_config(tmp_path, text):
    (tmp_path / "chirp.config").write_text(text)
    with pytest.raises(OSError, match="does not contain the address"):
        ChirpClient(tmp_path / "chirp.config", 5)


def test_find_config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_config({}) is None
    assert find_config({"_CONDOR_CHIRP_CONFIG": "nowhere"}) is None
    (tmp_path / ".chirp.config").touch()
    assert find_config({}) is not None


def test_escape_argument():
    assert escape_argument(b"a b\\c\n") == b"a\\ b\\\\c\\\n"
