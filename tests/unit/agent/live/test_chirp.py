"""The Chirp protocol, against a proxy that speaks it."""

import pytest

from packtrain.agent.live.chirp import MAX_REQUEST_BYTES, ChirpClient, ChirpError, escape_argument, find_config
from tests.support.chirp_proxy import ChirpProxy


@pytest.fixture
def proxy(tmp_path):
    with ChirpProxy(tmp_path) as proxy:
        yield proxy


def test_attributes_and_lines(proxy):
    chirp = ChirpClient(proxy.config_path, 5)
    chirp.set_attribute("PacktrainStage", '"fetch"')
    chirp.set_delayed_attribute("ChirpX", "1 + 1")
    chirp.log('packtrain {"text": "a\\\\b\tc"}')
    chirp.close()
    assert proxy.attributes == {"PacktrainStage": '"fetch"', "ChirpX": "1 + 1"}
    assert proxy.log_lines == ['packtrain {"text": "a\\\\b\tc"}']


@pytest.mark.parametrize("text", ["", "  ", "a b", "back\\slash\\", "line\nline\r\n\n", "tab\tü ✓ \x0b\x0c", "\\n \\ "])
def test_any_text_comes_through(proxy, text):
    chirp = ChirpClient(proxy.config_path, 5)
    chirp.log(f"<{text}>")
    chirp.close()
    assert proxy.log_lines == [f"<{text}>"]


@pytest.mark.parametrize("text", ["line\n", "\\n", "\\\\", "\x00"])
def test_a_value_that_could_hang_the_job_is_not_sent(proxy, text):
    chirp = ChirpClient(proxy.config_path, 5)
    for tell in (chirp.set_attribute, chirp.set_delayed_attribute):
        with pytest.raises(ChirpError):
            tell("A", f'"{text}"')
    chirp.set_attribute("B", '"say \\"hi\\" ü"')
    chirp.close()
    assert proxy.attributes == {"B": '"say \\"hi\\" ü"'}


def test_a_wrong_cookie(proxy):
    proxy.config_path.write_text(proxy.config_path.read_text().replace("c0ffee", "wrong"))
    with pytest.raises(ChirpError) as error:
        ChirpClient(proxy.config_path, 5)
    assert not error.value.is_permanent


def test_what_the_site_does_not_allow_is_refused_for_good(proxy):
    proxy.supported_commands.remove("set_job_attr")
    chirp = ChirpClient(proxy.config_path, 5)
    with pytest.raises(ChirpError) as error:
        chirp.set_attribute("A", "1")
    assert error.value.is_permanent
    chirp.log("it goes on")
    chirp.close()
    assert proxy.log_lines == ["it goes on"]


def test_a_line_too_long_is_not_sent(proxy):
    chirp = ChirpClient(proxy.config_path, 5)
    with pytest.raises(ChirpError) as error:
        chirp.set_attribute("A", "x" * MAX_REQUEST_BYTES)
    assert not error.value.is_permanent
    chirp.close()
    assert proxy.attributes == {}


def test_a_silent_proxy_is_waited_for_so_long(proxy):
    proxy.is_responding.clear()
    with pytest.raises(OSError, match="timed out"):
        ChirpClient(proxy.config_path, 0.05)


def test_a_proxy_that_is_gone(proxy, tmp_path):
    proxy.__exit__()
    with pytest.raises(ConnectionError):
        ChirpClient(proxy.config_path, 5)
    proxy.__enter__()


@pytest.mark.parametrize("text", ["", "host", "host port cookie"])
def test_a_file_that_says_nothing(tmp_path, text):
    (tmp_path / "chirp.config").write_text(text)
    with pytest.raises(OSError, match="does not say where"):
        ChirpClient(tmp_path / "chirp.config", 5)


def test_where_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_config({}) is None
    assert find_config({"_CONDOR_CHIRP_CONFIG": "nowhere"}) is None
    (tmp_path / ".chirp.config").touch()
    assert find_config({}) is not None


def test_blanks_and_backslashes_are_quoted():
    assert escape_argument(b"a b\\c\n") == b"a\\ b\\\\c\\\n"
