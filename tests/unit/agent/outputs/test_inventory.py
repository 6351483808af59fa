"""Every way in which an output can disappoint, told with the file, the wish and what was seen."""

import hashlib

import pytest

from packtrain.agent.outputs.inventory import check_expectation, format_contents, list_outputs, match_files, with_prefix
from packtrain.errors import FailedError
from packtrain.plan import ExpectedOutput


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "model.pt").write_bytes(b"x" * 100)
    (tmp_path / "empty.pt").touch()
    (tmp_path / "sub" / "a.log").write_text("a")
    (tmp_path / "sub" / "b.log").write_text("bb")
    return tmp_path


def good(command, path):
    return None


@pytest.mark.parametrize(
    ("expected", "count"),
    [
        (ExpectedOutput("model.pt"), 1),
        (ExpectedOutput("model.pt", min_bytes=100, max_bytes=100), 1),
        (ExpectedOutput("*/*.log", min_count=2, max_count=2), 2),
        (ExpectedOutput("**/*.log"), 2),
        (ExpectedOutput("empty.pt", min_bytes=0), 1),
        (ExpectedOutput("absent", min_count=0), 0),
        (ExpectedOutput("sub"), 1),
        (ExpectedOutput("sub", min_bytes=3), 1),
    ],
)
def test_what_holds(folder, expected, count):
    assert check_expectation(expected, folder, good) == count


@pytest.mark.parametrize(
    ("expected", "kind", "words"),
    [
        (
            ExpectedOutput("absent.pt"),
            "output_missing",
            ["'absent.pt' is missing", "0 files match", "contains empty.pt, model.pt"],
        ),
        (ExpectedOutput("**/*.log", min_count=3), "output_missing", ["2 files match", "at least 3"]),
        (ExpectedOutput("**/*.log", max_count=1), "output_invalid", ["matches 2 files", "at most 1"]),
        (ExpectedOutput("empty.pt"), "output_empty", ["empty.pt has 0 bytes", "at least 1 "]),
        (ExpectedOutput("model.pt", min_bytes=101), "output_empty", ["model.pt has 100 bytes", "at least 101 "]),
        (ExpectedOutput("model.pt", max_bytes=99), "output_invalid", ["model.pt has 100 bytes", "at most 99 "]),
        (ExpectedOutput("../x"), "output_invalid", ["'../x'", "not below the output folder"]),
        (ExpectedOutput("sub/../../x"), "output_invalid", ["not below the output folder"]),
        (ExpectedOutput("/etc/passwd"), "output_invalid", ["not below the output folder"]),
    ],
)
def test_what_does_not(folder, expected, kind, words):
    with pytest.raises(FailedError) as caught:
        check_expectation(expected, folder, good)
    assert caught.value.kind == kind
    for word in words:
        assert word in caught.value.detail


def test_a_command_judges_each_file(folder):
    asked = []

    def run(command, path):
        asked.append((command, path.name))
        return "exit code 1: bad magic" if path.name == "b.log" else None

    with pytest.raises(FailedError) as caught:
        check_expectation(ExpectedOutput("sub/*.log", command="judge it"), folder, run)
    assert asked == [("judge it", "a.log"), ("judge it", "b.log")]
    assert caught.value.kind == "output_invalid"
    assert caught.value.detail == (
        "the expected output sub/b.log did not pass its check `judge it`: exit code 1: bad magic"
    )


def test_a_folder_whose_name_looks_like_a_pattern(tmp_path):
    odd = tmp_path / "out[1]*"
    odd.mkdir()
    (odd / "file").write_text("x")
    assert match_files("file", odd) == [odd / "file"]


def test_contents_are_cut(tmp_path):
    assert format_contents(tmp_path) == "nothing"
    for n in range(12):
        (tmp_path / f"{n:02}").touch()
    assert format_contents(tmp_path) == "00, 01, 02, 03, 04, 05, 06, 07, 08, 09 and 2 more"


def test_the_inventory(folder):
    digest = hashlib.sha256(b"x" * 100).hexdigest()
    assert list_outputs(folder, with_digest=True)[1] == {"path": "model.pt", "bytes": 100, "sha256": digest}
    assert with_prefix("p/", list_outputs(folder, with_digest=False))[-1] == {"path": "p/sub/b.log", "bytes": 2}


def test_the_inventory_has_all_and_digests_of_the_first_thousand(tmp_path):
    for n in range(1001):
        (tmp_path / str(n)).touch()
    assert sum("sha256" in entry for entry in list_outputs(tmp_path, with_digest=True)) == 1000
    assert len(list_outputs(tmp_path, with_digest=False)) == 1001
