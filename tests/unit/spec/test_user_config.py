"""The configuration file of a user."""

from __future__ import annotations

import pytest

from packtrain.errors import UsageError
from packtrain.spec.user_config import UserConfig, load_user_config, user_config_path


@pytest.fixture
def load_config(tmp_path):
    def write(text: str):
        path = tmp_path / "config.yaml"
        path.write_text(text, encoding="utf-8")
        return load_user_config(path)

    return write


def test_defaults(tmp_path):
    assert load_user_config(tmp_path / "none.yaml") == UserConfig()
    assert UserConfig().htcondor.job_lease_duration == 6 * 3600


@pytest.mark.parametrize("text", ["", "# nothing\n", "htcondor:\n"])
def test_empty_file(load_config, text):
    assert load_config(text) == UserConfig()


def test_all_settings(load_config):
    settings = load_config(
        "htcondor: {project: Vision, jobLeaseDuration: 2h, maxJobs: 10, submitCommands: {+Mine: true, rank: Mips}}\n"
    ).htcondor
    assert (settings.project, settings.job_lease_duration, settings.max_jobs) == ("Vision", 7200, 10)
    assert settings.submit_commands == {"+Mine": "true", "rank": "Mips"}


def test_slurm_settings(load_config):
    settings = load_config(
        "slurm: {options: {partition: gpu, exclusive: true}, constraints: {a100: {memory: 40GB, capability: 8.0}},\n"
        "  memory: false, gpuOption: gres, cacheLimit: 5GB, supervisor: {time: 2h}}\n"
    ).slurm
    assert settings.options == {"partition": "gpu", "exclusive": "true"}
    assert settings.constraints["a100"].memory == 40_000 and settings.constraints["a100"].capability == "8.0"
    assert (settings.memory, settings.gpu_option, settings.cache_limit) == (False, "gres", 5 * 10**9)
    assert settings.supervisor.time == 7200


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("slurm: {options: {-p: gpu}}\n", "'-p' should be a long option of sbatch without its dashes"),
        ("slurm: {gpuOption: gpus}\n", "gpuOption"),
        ("htcondor: {projekt: x}\n", "config.yaml:1:12: htcondor has no key 'projekt'; did you mean 'project'?"),
        ("htcondor: {maxJobs: none}\n", "maxJobs"),
        ("htcondor: [1]\n", "should be a mapping"),
        ("htcondor: {\n", "config.yaml:"),
    ],
)
def test_bad_config(load_config, text, expected):
    with pytest.raises(UsageError) as error:
        load_config(text)
    assert expected in str(error.value)


def test_config_path(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("PACKTRAIN_CONFIG", raising=False)
    assert user_config_path() == tmp_path / "packtrain" / "config.yaml"
    monkeypatch.setenv("PACKTRAIN_CONFIG", "/elsewhere.yaml")
    assert str(user_config_path()) == "/elsewhere.yaml"
