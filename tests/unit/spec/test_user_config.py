"""A person's own settings."""

from __future__ import annotations

import pytest

from packtrain.errors import UsageError
from packtrain.spec.user_config import UserConfig, load_user_config, user_config_path


@pytest.fixture
def given(tmp_path):
    def write(text: str):
        path = tmp_path / "config.yaml"
        path.write_text(text, encoding="utf-8")
        return load_user_config(path)

    return write


def test_without_a_file_there_are_defaults(tmp_path):
    assert load_user_config(tmp_path / "none.yaml") == UserConfig()
    assert UserConfig().htcondor.job_lease_duration == 6 * 3600


@pytest.mark.parametrize("text", ["", "# nothing\n", "htcondor:\n"])
def test_an_empty_file_says_nothing(given, text):
    assert given(text) == UserConfig()


def test_what_can_be_said(given):
    made = given(
        "htcondor: {project: Vision, jobLeaseDuration: 2h, maxJobs: 10, submitCommands: {+Mine: true, rank: Mips}}\n"
    ).htcondor
    assert (made.project, made.job_lease_duration, made.max_jobs) == ("Vision", 7200, 10)
    assert made.submit_commands == {"+Mine": "true", "rank": "Mips"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("htcondor: {projekt: x}\n", "config.yaml:1:12: htcondor has no key 'projekt'; did you mean 'project'?"),
        ("htcondor: {maxJobs: none}\n", "maxJobs"),
        ("htcondor: [1]\n", "should be a mapping"),
        ("htcondor: {\n", "config.yaml:"),
    ],
)
def test_a_mistake_is_told_with_its_place(given, text, says):
    with pytest.raises(UsageError) as error:
        given(text)
    assert says in str(error.value)


def test_where_it_is(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("PACKTRAIN_CONFIG", raising=False)
    assert user_config_path() == tmp_path / "packtrain" / "config.yaml"
    monkeypatch.setenv("PACKTRAIN_CONFIG", "/elsewhere.yaml")
    assert str(user_config_path()) == "/elsewhere.yaml"
