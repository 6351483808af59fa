"""Outputs of programs that write where they run: `workDir`, `collect`, `stdout` and `stderr` of a run."""

from __future__ import annotations

import pytest

from packtrain.errors import FailedError
from packtrain.plan import CollectedOutput, RunAction, Step, StepResources
from tests.support.step_harness import StepHarness


@pytest.fixture
def bench(tmp_path):
    made = StepHarness(tmp_path)
    yield made
    made.close()


def step(command, **more):
    return Step("program", RunAction(command, work_dir="work", **more))


def outputs(bench):
    folder = bench.sandbox.output
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def collect(*wanted):
    return tuple(entry if isinstance(entry, CollectedOutput) else CollectedOutput(entry) for entry in wanted)


@pytest.fixture
def work(bench):
    folder = bench.sandbox.root / "work"
    folder.mkdir()
    (folder / "input.txt").write_text("input")
    (folder / "settings.txt").write_text("old")
    return folder


def test_a_working_folder_of_the_sandbox_is_made(bench):
    bench.run(step("pwd"))
    assert bench.read_log("program.out").strip() == str(bench.sandbox.root / "work")


def test_new_and_changed_files_at_the_top_are_outputs(bench, work):
    bench.run(
        step(
            "echo a > new.txt; echo b > .hidden; mkdir sub; echo c > sub/deep.txt; echo changed > settings.txt;"
            "ln -s new.txt link.txt; ln -s nowhere dangling; rm input.txt",
            collect=collect("*"),
        )
    )
    expected = {"new.txt": "a\n", ".hidden": "b\n", "settings.txt": "changed\n", "link.txt": "a\n"}
    assert outputs(bench) == expected
    assert not (bench.sandbox.output / "link.txt").is_symlink()
    assert (bench.sandbox.output / "dangling").is_symlink(), "so that it is told of"


def test_named_files_and_folders(bench, work):
    bench.run(
        step(
            "mkdir -p a/b c; echo 1 > a/b/x; echo 2 > c/y; echo 3 > model",
            collect=collect("a/b/x", "c/", "a", "input.txt", "missing", CollectedOutput("model", "models/best.pt")),
        )
    )
    assert outputs(bench) == {
        "x": "1\n",
        "y": "2\n",
        "a/b/x": "1\n",
        "input.txt": "input",
        "models/best.pt": "3\n",
    }


def test_links_to_nowhere_come_along_to_be_told_of(bench, work):
    bench.run(step("mkdir d; echo 1 > d/x; ln -s gone d/y; ln -s gone z", collect=collect("d", "z")))
    assert outputs(bench) == {"d/x": "1\n"}
    assert all((bench.sandbox.output / name).is_symlink() for name in ("d/y", "z"))


def test_patterns_lead_deeper(bench, work):
    bench.run(step("mkdir -p d/e; echo 1 > d/e/m.pt; echo 2 > d/n.txt", collect=collect("**/*.pt")))
    assert outputs(bench) == {"m.pt": "1\n"}


def test_what_a_failed_program_left_is_collected_too(bench, work):
    with pytest.raises(FailedError, match="exit code 3"):
        bench.run(step("echo partial > result; exit 3", collect=collect("*"), stdout="out"))
    assert outputs(bench) == {"result": "partial\n", "out": ""}


def test_words_are_kept_as_files(bench):
    bench.run(step("echo out; echo err >&2", stdout="logs/o.txt", stderr="logs/e.txt"))
    assert outputs(bench) == {"logs/o.txt": "out\n", "logs/e.txt": "err\n"}
    assert bench.read_log("program.out") == "out\n"


def test_both_words_in_one_file(bench):
    bench.run(step("echo out; echo err >&2", stdout="o.txt", stderr="o.txt"))
    assert outputs(bench) == {"o.txt": "out\nerr\n"}


def test_words_of_several_tasks(bench):
    bench.run(step("echo $RANK", stdout="o", resources=StepResources(tasks=2)))
    assert outputs(bench) == {"o.0": "0\n", "o.1": "1\n"}


def test_secrets_stay_out_of_kept_words(tmp_path):
    bench = StepHarness(tmp_path, secrets={"t": "s3cret-value-77"})
    try:
        bench.run(step("echo s3cret-value-77", stdout="o"))
        assert outputs(bench) == {"o": "***\n"}
    finally:
        bench.close()
