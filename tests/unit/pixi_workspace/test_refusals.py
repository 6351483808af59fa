"""What cannot run on a worker is refused with one sentence, which names the command or change that helps."""

import pytest

from packtrain.pixi_workspace.environment import read_environment
from packtrain.pixi_workspace.errors import PixiError
from testbed.pixi.packages import build_wheel
from tests.support.pixi_locks import conda, local, lock_text, wheel, write_files

GIT = "git+https://git.example.org/own.git#0123456789abcdef0123456789abcdef01234567"
EMPTY = lock_text({"linux-64": []})

# manifest, lock file, sentence; FOLDER is the folder of the workspace
REFUSALS = {
    "no lock file": ("", "", "there is no FOLDER/pixi.lock; run `pixi lock` and keep the file with the manifest"),
    "another environment": (
        "",
        lock_text({"linux-64": []}, environment="gpu"),
        "FOLDER/pixi.lock has no environment 'default', it has gpu; run `pixi lock`",
    ),
    "another platform": (
        "",
        lock_text({"osx-arm64": []}),
        "the environment 'default' is locked for osx-arm64, not for linux-64; "
        "run `pixi workspace platform add linux-64`",
    ),
    "older than the manifest": (
        '[dependencies]\nscipy = "*"\nnumpy = "*"\n',
        lock_text({"linux-64": [conda("numpy")]}),
        "FOLDER/pixi.lock is older than pixi.toml: scipy is not in it; run `pixi lock`",
    ),
    "two names are missing": (
        '[dependencies]\nscipy = "*"\n[pypi-dependencies]\nTorch_Vision = "*"\n',
        EMPTY,
        "FOLDER/pixi.lock is older than pixi.toml: scipy, torch-vision are not in it; run `pixi lock`",
    ),
    "a package from git": (
        "",
        lock_text({"linux-64": [local(GIT, "own")]}),
        "own comes from git; build a wheel of it and lock the wheel",
    ),
    "a source distribution": (
        "",
        lock_text({"linux-64": [local("https://files.example.org/own-1.0.tar.gz", "own", sha256="cd" * 32)]}),
        "own has no wheel for this platform, only its source (own-1.0.tar.gz); "
        "lock a version that has wheels, or add it from a conda channel",
    ),
    "a folder that is not editable": (
        '[pypi-dependencies]\nown = { path = "own" }\n',
        lock_text({"linux-64": [local("./own", "own")]}),
        'own is built from the folder ./own; set `own = { path = "./own", editable = true }`, '
        "and its code is sent as it is",
    ),
    "an editable package that must be compiled": (
        '[pypi-dependencies]\nfast = { path = "fast", editable = true }\n',
        lock_text({"linux-64": [local("./fast", "fast")]}),
        "fast must be compiled (by maturin), so its code alone is not enough; build a wheel of it and lock the wheel",
    ),
    "a wheel without digest": (
        "",
        lock_text({"linux-64": [{key: value for key, value in wheel("own").items() if key != "sha256"}]}),
        "own has no sha256 in the lock file; run `pixi lock` to add it",
    ),
    "a conda package without digest": (
        "",
        lock_text({"linux-64": [{key: value for key, value in conda("own").items() if key != "sha256"}]}),
        "own has no sha256 in the lock file; run `pixi lock` to add it",
    ),
    "a wheel that is not there": (
        "",
        lock_text({"linux-64": [local("./missing-1.0-py3-none-any.whl", "missing")]}),
        "FOLDER/missing-1.0-py3-none-any.whl does not exist on this machine; build it, or run `pixi lock`",
    ),
    "a wheel that has changed": (
        "",
        lock_text({"linux-64": [local("./changed-1.0-py3-none-any.whl", "changed", sha256="cd" * 32)]}),
        "FOLDER/changed-1.0-py3-none-any.whl has changed since it was locked; run `pixi lock`",
    ),
    "a package that pixi-build builds": (
        "",
        "version: 6\nenvironments:\n  default:\n    channels: []\n    packages:\n      linux-64:\n      - conda: .\n"
        "packages:\n- conda: .\n  name: own\n  version: '1'\n  build: h0\n  subdir: linux-64\n  input:\n"
        "    hash: " + "ab" * 32 + "\n    globs: []\n",
        "own is built from source (.), which packtrain cannot do; build it, add it to a channel and lock it from there",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusal(tmp_path, case):
    manifest, lock, sentence = REFUSALS[case]
    (tmp_path / "own").mkdir()
    (tmp_path / "fast").mkdir()
    (tmp_path / "fast/pyproject.toml").write_text('[build-system]\nbuild-backend = "maturin"\n')
    build_wheel(tmp_path, "changed")
    with pytest.raises(PixiError) as caught:
        read_environment(write_files(tmp_path, manifest, lock), "default", has_gpu=False)
    assert str(caught.value) == sentence.replace("FOLDER", str(tmp_path))


def test_each_package_has_its_own_sentence(tmp_path):
    lock = lock_text({"linux-64": [local(GIT, "own"), local("./missing-1.0-py3-none-any.whl", "missing")]})
    with pytest.raises(PixiError) as caught:
        read_environment(write_files(tmp_path, "", lock), "default", has_gpu=False)
    assert [problem.message.split()[0] for problem in caught.value.problems] == [
        f"{tmp_path}/missing-1.0-py3-none-any.whl",
        "own",
    ]


def test_unknown_environment_and_unreadable_files(tmp_path):
    manifest = write_files(tmp_path, '[environments]\ngpu = ["gpu"]\n', "version: 99\n")
    with pytest.raises(PixiError, match=r"pixi.toml has no environment 'cuda'; it has default, gpu"):
        read_environment(manifest, "cuda", has_gpu=False)
    with pytest.raises(PixiError, match=r"py-rattler cannot read .*pixi.lock: .*99.*; update py-rattler, or run"):
        read_environment(manifest, "gpu", has_gpu=False)
    manifest.write_text("[workspace\n")
    with pytest.raises(PixiError, match=r"pixi.toml cannot be read: .*line 1"):
        read_environment(manifest, "default", has_gpu=False)
    with pytest.raises(PixiError, match=r"there is no .*nowhere/pixi.toml; name the manifest"):
        read_environment(tmp_path / "nowhere/pixi.toml", "default", has_gpu=False)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    with pytest.raises(PixiError, match=r"pyproject.toml has no \[tool.pixi\]; run `pixi init` in its folder"):
        read_environment(tmp_path / "pyproject.toml", "default", has_gpu=False)


@pytest.mark.parametrize("module", ["rattler", "tomli"])
def test_missing_extra(tmp_path, monkeypatch, module):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(PixiError, match=rf"need the package {module}; run `pip install 'packtrain\[pixi\]'`"):
        read_environment(write_files(tmp_path, "", EMPTY), "default", has_gpu=False)


def test_sites_own_pixi_may_build_packages(tmp_path):
    manifest = write_files(tmp_path, "", lock_text({"linux-64": [local(GIT, "own"), wheel("good")]}))
    environment = read_environment(manifest, "default", has_gpu=False, must_ship=False)
    assert [package.name for package in environment.lock.packages] == ["good"]


PIXI_PROGRAM = """#!/bin/sh
[ "$1 $2" = "lock --check" ] || exit 9
echo "$4" > "$(dirname "$0")/asked"
{answer}
"""


@pytest.mark.parametrize(
    ("answer", "is_outdated"),
    [
        ("exit 0", False),
        ("echo '× lock-file not up-to-date with the workspace' >&2; exit 1", True),
        ("echo 'error sending request for url' >&2; exit 1", False),
    ],
)
def test_pixi_itself_checks_the_lock_file(tmp_path, monkeypatch, answer, is_outdated):
    """A failure of another kind, such as a network that is down, refuses nothing."""
    program = tmp_path / "bin/pixi"
    program.parent.mkdir()
    program.write_text(PIXI_PROGRAM.format(answer=answer))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    manifest = write_files(tmp_path / "ws", "", EMPTY)
    if is_outdated:
        with pytest.raises(PixiError) as caught:
            read_environment(manifest, "default", has_gpu=False)
        found = f"{manifest.parent}/pixi.lock does not match pixi.toml, as `pixi lock --check` found; run `pixi lock`"
        assert str(caught.value) == found
    else:
        read_environment(manifest, "default", has_gpu=False)
    assert (program.parent / "asked").read_text() == f"{manifest}\n"
