"""What a workspace's environment is made of: packages as rattler reads them, platforms, features, code."""

import json

import pytest
import rattler

from packtrain.pixi_workspace.environment import read_environment
from packtrain.pixi_workspace.manifest import find_manifest, read_manifest
from testbed.pixi.packages import build_wheel
from testbed.pixi.workspace import ENVIRONMENTS, LOCK_VERSIONS, write_workspace
from tests.support.pixi_locks import SHA256, conda, local, lock_text, wheel, write_files

EMPTY = lock_text({"linux-64": []})


@pytest.mark.parametrize("version", LOCK_VERSIONS)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_packages_are_those_of_rattler(tmp_path, pixi_site, version, name):
    manifest = write_workspace(tmp_path, pixi_site, "https://conda.example.org", version)
    environment = read_environment(manifest, name, has_gpu=False)
    locked = rattler.LockFile.from_path(manifest.with_name("pixi.lock")).environment(name)
    (platform,) = locked.platforms()
    expected = {(package.location, package.hashes.sha256.hex()) for package in locked.packages(platform)}
    assert {(package.url, package.sha256) for package in environment.lock.packages} == expected
    records = rattler.PackageRecord.sort_topologically(locked.conda_repodata_records_for_platform(platform))
    names = [package.name for package in environment.lock.packages]
    assert names == [record.name.normalized for record in records] + ["wheel-native", "wheel-tool"]
    sizes = {record.name.normalized: record.size for record in records}
    assert {p.name: p.size for p in environment.lock.packages if not p.is_wheel} == sizes


def test_both_lock_versions_are_the_same_prefix(tmp_path, pixi_site):
    digests = {
        read_environment(write_workspace(tmp_path / str(v), pixi_site, "https://a.org", v), "cpu", has_gpu=False).digest
        for v in LOCK_VERSIONS
    }
    other = read_environment(tmp_path / "7/pixi.toml", "default", has_gpu=False).digest
    assert len(digests) == 1 and other not in digests


def test_package_fields(tmp_path):
    packages = [
        conda("tool", "2.1", "py_3", "noarch", noarch="python"),
        conda("data", subdir="noarch", noarch="generic"),
        conda("python", "3.12.4", "h1_0", python_site_packages_path="lib/python3.12t/site-packages"),
        wheel("big-model", "1.0+cu124", "py3-none-any"),
    ]
    environment = read_environment(
        write_files(tmp_path, "", lock_text({"linux-64": packages})), "default", has_gpu=False
    )
    by_name = {package.name: package for package in environment.lock.packages}
    tool = by_name["tool"]
    assert (tool.version, tool.build, tool.subdir, tool.noarch, tool.size) == ("2.1", "py_3", "noarch", "python", 1000)
    assert by_name["data"].noarch == "generic" and by_name["python"].noarch == ""
    assert by_name["big-model"].file_name == "big_model-1.0+cu124-py3-none-any.whl"
    assert (by_name["big-model"].sha256, by_name["big-model"].size) == (SHA256, None)
    assert (environment.lock.python, environment.lock.site_packages) == ("3.12", "lib/python3.12t/site-packages")


PLATFORMS = {"linux-64": ["__glibc=2.28"], "p1": ["__cuda=12.4", "__glibc=2.28"], "p2": ["__cuda=12.10"]}
MULTI = """
[workspace]
name = "multi"
channels = []
platforms = ["linux-64", {name = "old-cuda", platform = "linux-64", cuda = "12.4"},
  {name = "new-cuda", platform = "linux-64", cuda = "12.10"}]
[tasks]
where = "echo cpu"
[target.new-cuda.tasks]
where = "echo cuda"
[activation.env]
KIND = "cpu"
[target.new-cuda.activation.env]
KIND = "cuda"
"""


@pytest.mark.parametrize(
    ("has_gpu", "platform", "kind", "command", "min_cuda"),
    [(False, "linux-64", "cpu", "echo cpu", ""), (True, "p2", "cuda", "echo cuda", "12.10")],
)
def test_named_platforms(tmp_path, has_gpu, platform, kind, command, min_cuda):
    """The lock file names platforms itself: p2 is the manifest's new-cuda, known by its CUDA version."""
    locked = {
        "linux-64": [conda("torch", build="cpu")],
        "p1": [conda("torch", build="old")],
        "p2": [conda("torch", build="cuda")],
    }
    manifest = write_files(tmp_path, MULTI, lock_text(locked, 7, PLATFORMS))
    environment = read_environment(manifest, "default", has_gpu=has_gpu)
    assert environment.locked_platform == platform
    assert environment.lock.packages[0].build == kind
    assert environment.activation_env == {"KIND": kind}
    assert environment.tasks.render("where")[0].command == command
    assert environment.requires.min_cuda == min_cuda
    assert environment.platforms == ("linux-64", "old-cuda", "new-cuda")


FEATURES = """
[activation]
scripts = ["base.sh"]
env = { A = "base", B = "base", C = "base" }
[target.linux.activation]
scripts = ["linux.sh"]
env = { A = "linux" }
[tasks]
a = "echo base"
[feature.one]
activation = { scripts = ["one.sh"], env = { A = "one" } }
tasks = { a = "echo one" }
[feature.two.activation.env]
A = "two"
B = "two"
[feature.one.system-requirements]
cuda = "12.1"
[environments]
both = ["one", "two"]
alone = { features = ["two"], no-default-feature = true }
"""


def test_features_of_an_environment(tmp_path):
    """Values of earlier features win; scripts of all features run, in each one those of the most specific target."""
    names = ("default", "both", "alone")
    lock = json.loads(EMPTY)
    lock["environments"] = dict.fromkeys(names, lock["environments"]["default"])
    manifest = write_files(tmp_path, FEATURES, json.dumps(lock))
    default, both, alone = (read_environment(manifest, name, has_gpu=True) for name in names)
    assert default.activation_env == {"A": "linux", "B": "base", "C": "base"}
    assert both.activation_env == {"A": "one", "B": "two", "C": "base"}
    assert alone.activation_env == {"A": "two", "B": "two"}
    assert (default.activation_scripts, both.activation_scripts) == (("linux.sh",), ("one.sh", "linux.sh"))
    assert both.tasks.render("a")[0].command == "echo one"
    assert [one.requires.min_cuda for one in (default, both, alone)] == ["", "12.1", ""]


PYPROJECT = """
[project]
name = "Own.Package"
version = "2.5"
dependencies = ["numpy>=1", "scipy ; python_version > '3'"]
[tool.pixi.workspace]
channels = ["c"]
platforms = ["linux-64"]
[tool.pixi.pypi-dependencies]
own-package = { path = ".",
    editable = true }
"""


@pytest.mark.parametrize(("files", "path"), [(["src/own_package/a.py"], "src"), (["own_package/a.py", "src/x"], ".")])
def test_pyproject_with_editable_package(tmp_path, files, path):
    lock = lock_text({"linux-64": [conda("numpy"), local("./", "own-package")]})
    manifest = write_files(tmp_path, PYPROJECT, lock, "pyproject.toml")
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    environment = read_environment(manifest, "default", has_gpu=False)
    assert environment.python_path == (path,)
    assert (environment.manifest.name, environment.manifest.version) == ("Own.Package", "2.5")
    assert [package.name for package in environment.lock.packages] == ["numpy"]


def test_names_of_pypi_packages_that_conda_provides(tmp_path):
    """`torch` of PyPI is `pytorch` of conda: the lock file says so with a purl."""
    packages = [conda("pytorch", purls=["pkg:pypi/torch?source=conda-forge-mapping"])]
    manifest = write_files(tmp_path, '[pypi-dependencies]\ntorch = "*"\n', lock_text({"linux-64": packages}))
    assert read_environment(manifest, "default", has_gpu=False).lock.packages[0].name == "pytorch"


def test_conditional_dependency_need_not_be_locked(tmp_path):
    manifest = write_files(tmp_path, '[dependencies]\ntorch = { version = "*", when = "__cuda>=12" }\n', EMPTY)
    assert read_environment(manifest, "default", has_gpu=False).lock.packages == ()


def test_local_wheel(tmp_path):
    path = build_wheel(tmp_path / "dist", "own")
    manifest = write_files(tmp_path, "", lock_text({"linux-64": [local(f"./dist/{path.name}", "own")]}))
    environment = read_environment(manifest, "default", has_gpu=False)
    (package,) = environment.lock.packages
    assert (package.url, package.file_name, package.size) == ("", path.name, path.stat().st_size)
    assert environment.local_files == {path.name: path}


def test_file_name_stays_in_its_folder(tmp_path):
    """A name with an encoded slash would be written elsewhere on the worker."""
    entry = wheel("evil")
    entry["pypi"] = "https://files.example.org/a%2F..%2F..%2Fevil-1.0-py3-none-any.whl"
    environment = read_environment(
        write_files(tmp_path, "", lock_text({"linux-64": [entry]})), "default", has_gpu=False
    )
    assert [package.file_name for package in environment.lock.packages] == ["evil-1.0-py3-none-any.whl"]


def test_find_manifest(tmp_path):
    assert find_manifest(tmp_path) is None
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert find_manifest(tmp_path) is None
    write_files(tmp_path, PYPROJECT, name="pyproject.toml")
    assert find_manifest(tmp_path) == tmp_path / "pyproject.toml"
    write_files(tmp_path, "")
    assert find_manifest(tmp_path) == tmp_path / "pixi.toml"
    assert read_manifest(tmp_path / "pixi.toml").name == "ws"
