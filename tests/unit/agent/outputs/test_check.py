"""Expectations: every way in which an output can fail, with a message that names the file and the requirement."""

import pytest

from packtrain.agent.outputs.check import check_expectation
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


def accept(command, path):
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
def test_met(folder, expected, count):
    assert check_expectation(expected, folder, accept) == count


@pytest.mark.parametrize(
    ("expected", "kind", "fragments"),
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
def test_not_met(folder, expected, kind, fragments):
    with pytest.raises(FailedError) as caught:
        check_expectation(expected, folder, accept)
    assert caught.value.kind == kind
    for fragment in fragments:
        assert fragment in caught.value.detail


def test_command_checks_each_file(folder):
    calls = []

    def run_command(command, path):
        calls.append((command, path.name))
        return "exit code 1: bad magic" if path.name == "b.log" else None

    with pytest.raises(FailedError) as caught:
        check_expectation(ExpectedOutput("sub/*.log", command="check it"), folder, run_command)
    assert calls == [("check it", "a.log"), ("check it", "b.log")]
    assert caught.value.kind == "output_invalid"
    assert caught.value.detail == (
        "the expected output sub/b.log did not pass its check `check it`: exit code 1: bad magic"
    )
