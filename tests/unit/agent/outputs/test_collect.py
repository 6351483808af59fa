"""Outputs of programs that write to their working folder: `workDir`, `collect`, `stdout` and `stderr` of a run."""

from __future__ import annotations

import pytest

from packtrain.errors import FailedError
from packtrain.plan import CollectedOutput, RunAction, Step, StepResources
from tests.support.step_harness import StepHarness


@pytest.fixture
def harness(tmp_path):
    harness = StepHarness(tmp_path)
    yield harness
    harness.close()


def make_step(command, **options):
    return Step("program", RunAction(command, work_dir="work", **options))


def read_outputs(harness):
    folder = harness.sandbox.output
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def rules(*entries):
    return tuple(entry if isinstance(entry, CollectedOutput) else CollectedOutput(entry) for entry in entries)


@pytest.fixture
def work_dir(harness):
    folder = harness.sandbox.root / "work"
    folder.mkdir()
    (folder / "input.txt").write_text("input")
    (folder / "settings.txt").write_text("old")
    return folder


def test_work_dir_is_created(harness):
    harness.run(make_step("pwd"))
    assert harness.read_log("program.out").strip() == str(harness.sandbox.root / "work")


def test_star_collects_new_and_changed_files(harness, work_dir):
    harness.run(
        make_step(
            "echo a > new.txt; echo b > .hidden; mkdir sub; echo c > sub/deep.txt; echo changed > settings.txt;"
            "ln -s new.txt link.txt; ln -s nowhere dangling; rm input.txt",
            collect=rules("*"),
        )
    )
    expected = {"new.txt": "a\n", ".hidden": "b\n", "settings.txt": "changed\n", "link.txt": "a\n"}
    assert read_outputs(harness) == expected
    assert not (harness.sandbox.output / "link.txt").is_symlink()
    assert (harness.sandbox.output / "dangling").is_symlink(), "resolve_links reports it later"


def test_named_files_and_folders(harness, work_dir):
    harness.run(
        make_step(
            "mkdir -p a/b c; echo 1 > a/b/x; echo 2 > c/y; echo 3 > model",
            collect=rules("a/b/x", "c/", "a", "input.txt", "missing", CollectedOutput("model", "models/best.pt")),
        )
    )
    assert read_outputs(harness) == {
        "x": "1\n",
        "y": "2\n",
        "a/b/x": "1\n",
        "input.txt": "input",
        "models/best.pt": "3\n",
    }


def test_dangling_links_are_copied(harness, work_dir):
    harness.run(make_step("mkdir d; echo 1 > d/x; ln -s gone d/y; ln -s gone z", collect=rules("d", "z")))
    assert read_outputs(harness) == {"d/x": "1\n"}
    assert all((harness.sandbox.output / name).is_symlink() for name in ("d/y", "z"))


def test_recursive_pattern(harness, work_dir):
    harness.run(make_step("mkdir -p d/e; echo 1 > d/e/m.pt; echo 2 > d/n.txt", collect=rules("**/*.pt")))
    assert read_outputs(harness) == {"m.pt": "1\n"}


def test_outputs_of_failed_program_are_collected(harness, work_dir):
    with pytest.raises(FailedError, match="exit code 3"):
        harness.run(make_step("echo partial > result; exit 3", collect=rules("*"), stdout="out"))
    assert read_outputs(harness) == {"result": "partial\n", "out": ""}


def test_logs_become_outputs(harness):
    harness.run(make_step("echo out; echo err >&2", stdout="logs/o.txt", stderr="logs/e.txt"))
    assert read_outputs(harness) == {"logs/o.txt": "out\n", "logs/e.txt": "err\n"}
    assert harness.read_log("program.out") == "out\n"


def test_both_logs_in_one_file(harness):
    harness.run(make_step("echo out; echo err >&2", stdout="o.txt", stderr="o.txt"))
    assert read_outputs(harness) == {"o.txt": "out\nerr\n"}


def test_logs_of_several_tasks(harness):
    harness.run(make_step("echo $RANK", stdout="o", resources=StepResources(tasks=2)))
    assert read_outputs(harness) == {"o.0": "0\n", "o.1": "1\n"}


def test_secrets_are_redacted_in_logs(tmp_path):
    harness = StepHarness(tmp_path, secrets={"t": "s3cret-value-77"})
    try:
        harness.run(make_step("echo s3cret-value-77", stdout="o"))
        assert read_outputs(harness) == {"o": "***\n"}
    finally:
        harness.close()
