"""Activation sets the variables that `pixi shell-hook` would set, in its order."""

from __future__ import annotations

import json
import subprocess

import pytest

from packtrain.errors import FailedError
from packtrain.pixi import activation as module
from packtrain.pixi.activation import Activation, activate, shell_hook

ENVIRON = {"PATH": "/usr/bin:/bin", "HOME": "/home/u", "CONDA_PREFIX": "/outer", "CONDA_SHLVL": "2", "KEPT": "a b\nc"}


@pytest.fixture
def prefix(tmp_path):
    folder = tmp_path / "a prefix"
    folder.mkdir()

    def add(path, content):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content if isinstance(content, str) else json.dumps(content))

    add.path = str(folder)
    return add


def test_without_scripts_no_shell_runs(prefix, monkeypatch):
    monkeypatch.setattr(module.subprocess, "run", lambda *args, **options: pytest.fail("a shell was started"))
    variables = activate(Activation(prefix.path, {"PIXI_IN_SHELL": "1"}, (), {"LAST": "x"}), ENVIRON)
    assert variables == {
        "PATH": f"{prefix.path}/bin:/usr/bin:/bin",
        "HOME": "/home/u",
        "KEPT": "a b\nc",
        "CONDA_PREFIX": prefix.path,
        "CONDA_SHLVL": "1",
        "PIXI_IN_SHELL": "1",
        "LAST": "x",
    }


def test_order(prefix, tmp_path):
    """Each source sees what the earlier ones set: env_vars.d, PIXI_*, activate.d, manifest's scripts and variables."""
    prefix("etc/conda/env_vars.d/b.json", {"A": "b", "N": 3, "FROM_HOME": "$HOME/x"})
    prefix("etc/conda/env_vars.d/a.json", {"A": "a"})
    prefix("etc/conda/activate.d/2.sh", 'export A="$A-2"\nfalse\n')
    prefix("etc/conda/activate.d/1.sh", 'export A="$A-$PIXI_NAME-1"; echo printed; export LINES="x\ny"\n')
    prefix("etc/conda/activate.d/1.fish", "syntax error (")
    own = tmp_path / "own script.sh"
    own.write_text('export A="$A-own"\nunset KEPT\n')
    activation = Activation(
        prefix.path, {"PIXI_NAME": "p'x"}, (str(own),), {"A": "$A-last", "PLAIN": 'quote " and back`'}
    )
    variables = activate(activation, ENVIRON)
    assert variables["A"] == "b-p'x-1-2-own-last"
    assert (variables["FROM_HOME"], variables["LINES"]) == ("/home/u/x", "x\ny")
    assert variables["PLAIN"] == 'quote " and back`'
    assert not {"N", "KEPT", "_", "SHLVL", "PWD", "OLDPWD"} & set(variables)
    hook = shell_hook(activation) + "exec /usr/bin/env -0"
    shell = subprocess.run(["bash", "-c", hook], env=ENVIRON, stdout=subprocess.PIPE, check=True).stdout.decode()
    by_hook = dict(line.split("=", 1) for line in shell.split("\0") if "=" in line and not line.startswith("printed"))
    assert {name: by_hook[name] for name in variables} == variables


def test_startup_file_of_bash_is_not_read(prefix, tmp_path):
    (tmp_path / "startup").write_text("export WRONG=1\n")
    prefix("etc/conda/activate.d/1.sh", "export RIGHT=1\n")
    environ = {**ENVIRON, "BASH_ENV": str(tmp_path / "startup"), "PWD": "/somewhere"}
    variables = activate(Activation(prefix.path, {}), environ)
    assert "WRONG" not in variables
    assert (variables["RIGHT"], variables["BASH_ENV"], variables["PWD"]) == ("1", environ["BASH_ENV"], "/somewhere")


@pytest.mark.parametrize(
    ("script", "kind", "problem"),
    [
        ("echo no license >&2; exit 3", "activation_failed", "code 3; its last line: no license"),
        ("exit 0", "activation_failed", "ended the shell with code 0"),
        ("if", "", ""),  # a syntax error does not stop the activation, as in Pixi
        ("kill -9 $$", "activation_failed", "code -9"),
        ("sleep 30", "activation_failed", "did not end within 0.2 s"),
    ],
)
def test_script_that_fails(prefix, monkeypatch, script, kind, problem):
    prefix("etc/conda/activate.d/1.sh", f"{script}\n")
    if "sleep" in script:
        monkeypatch.setattr(module, "_TIMEOUT_S", 0.2)
    if not kind:
        assert activate(Activation(prefix.path, {}), ENVIRON)["CONDA_SHLVL"] == "1"
        return
    with pytest.raises(FailedError) as error:
        activate(Activation(prefix.path, {}), ENVIRON)
    assert (error.value.kind, problem in error.value.detail) == (kind, True)


def test_no_bash(prefix, monkeypatch):
    prefix("etc/conda/activate.d/1.sh", "true\n")
    monkeypatch.setattr(module.shutil, "which", lambda name, path=None: None)
    with pytest.raises(FailedError, match="there is no bash"):
        activate(Activation(prefix.path, {}), ENVIRON)


def test_bad_names_and_files(prefix):
    with pytest.raises(FailedError, match="cannot be the name of a variable"):
        activate(Activation(prefix.path, {}, (), {"A B": "$x"}), ENVIRON)
    prefix("etc/conda/env_vars.d/a.json", "{")
    with pytest.raises(FailedError, match=r"a\.json cannot be read"):
        activate(Activation(prefix.path, {}), ENVIRON)
