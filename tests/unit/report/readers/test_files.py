"""Reading files, folders and globs, including rotated and compressed logs."""

from __future__ import annotations

import gzip
import shutil

import pytest

from packtrain.errors import NotFoundError, UsageError
from packtrain.report.history import Outcome
from packtrain.report.readers.files import read_history
from tests.support.paths import TESTS_DIR

DATA = TESTS_DIR / "data"
LOGS = DATA / "condor-logs"
LOG = LOGS / "46-three-procs.log"


def split_log(text):
    """Split a log after its tenth event."""
    position = sum(len(part) + 4 for part in text.split("...\n")[:10])
    return text[:position], text[position:]


def test_folder(tmp_path):
    history = read_history([str(LOGS)])
    assert history.name == "17 logs"
    assert len(history.jobs) == len({job.id for job in history.jobs}) == 23
    assert "9.0 (45-late-materialization.log)" in {job.id for job in history.jobs}  # 08 has a job with the same id


def test_glob():
    assert len(read_history([str(LOGS / "4*.log")]).jobs) == 8


def test_duplicate_logs_are_read_once(tmp_path):
    shutil.copy(LOG, tmp_path / "copy.log")
    assert [job.id for job in read_history([str(LOG), str(LOG), str(tmp_path / "copy.log")]).jobs] == [
        "10.0",
        "10.1",
        "10.2",
    ]


@pytest.mark.parametrize(("old", "compressed"), [("log.old", False), ("log.1", False), ("log.1.gz", True)])
def test_rotated_log(tmp_path, old, compressed):
    first, second = split_log(LOG.read_text())
    (tmp_path / old).write_bytes(gzip.compress(first.encode()) if compressed else first.encode())
    (tmp_path / "log").write_text(second)
    jobs = read_history([str(LOG)]).jobs
    assert read_history([str(tmp_path / "log")]).jobs == jobs
    assert read_history([str(tmp_path / "*")]).jobs == jobs


def test_parts_are_read_in_order(tmp_path):
    parts = LOG.read_text().split("...\n")
    for number, name in enumerate(("log.3", "log.2", "log.1", "log")):
        (tmp_path / name).write_text("...\n".join([*parts[number * 6 : number * 6 + 6], ""]))
    remaining = "...\n".join(parts[24:])
    (tmp_path / "log").write_text((tmp_path / "log").read_text() + remaining)
    assert read_history([str(tmp_path / "log")]).jobs == read_history([str(LOG)]).jobs


@pytest.mark.parametrize("pattern", ["job.{}", "log.1234.{}"])
def test_process_numbers_are_not_rotations(tmp_path, pattern):
    """Each log has one job of a cluster. They are separate logs, not rotated parts of one."""
    text = (LOGS / "01-success-gpu-transfer.log").read_text()
    for number in range(3):
        (tmp_path / pattern.format(number)).write_text(text.replace("(002.000", f"(002.00{number}"))
    (tmp_path / "job").write_text("#!/bin/sh\n# no log\n")
    history = read_history([str(tmp_path / pattern.format("*"))])
    assert history.name == "3 logs"
    assert [job.id for job in history.jobs] == ["2.0", "2.1", "2.2"]


def test_rotated_log_with_numeric_name(tmp_path):
    first, second = split_log(LOG.read_text())
    (tmp_path / "job.5.1").write_text(first)
    (tmp_path / "job.5").write_text(second)
    assert (
        read_history([str(tmp_path / "job.5")]).jobs
        == read_history([str(tmp_path / "job.5*")]).jobs
        == read_history([str(LOG)]).jobs
    )


def test_truncated_logs_are_separate_jobs(tmp_path):
    """They have the same id, but may be different jobs."""
    end = "\n\t(1) Normal termination (return value {})\n...\n"
    for number, name in enumerate(("a", "b")):
        (tmp_path / name).mkdir()
        text = f"005 (007.000.000) 2026-11-16 0{number}:00:00 Job terminated.{end.format(number)}"
        (tmp_path / name / "log").write_text(text)
    jobs = read_history([str(tmp_path / "a"), str(tmp_path / "b")]).jobs
    assert [(job.id, job.outcome) for job in jobs] == [("7.0", Outcome.SUCCEEDED), ("7.0 (log)", Outcome.FAILED)]


def test_truncated_gzip(tmp_path):
    compressed = gzip.compress((LOGS / "45-late-materialization.log").read_bytes())
    (tmp_path / "log.gz").write_bytes(compressed[: len(compressed) * 2 // 3])
    history = read_history([str(tmp_path / "log.gz")])
    assert history.jobs
    assert history.name == "log.gz"


def test_growing_log(tmp_path):
    first, _ = split_log(LOG.read_text())
    log = tmp_path / "log"
    log.write_text(first + "005 (010.000.000) 2026-11-15 18")
    history = read_history([str(log)])
    assert {job.outcome for job in history.jobs} == {Outcome.RUNNING}
    assert history.n_skipped == 1
    assert history.problems[0].line == first.count("\n") + 1
    assert "005 (010.000.000)" in history.problems[0].message
    shutil.copy(LOG, log)
    assert read_history([str(log)]).jobs == read_history([str(LOG)]).jobs


def test_unreadable_events_are_counted(tmp_path):
    log = tmp_path / "log"
    log.write_text(LOG.read_text().replace("001 (010.000.000)", "001 (010.000"))
    history = read_history([str(log)])
    assert history.n_skipped == 1
    assert history.problems[0].path == str(log)
    assert "001 (010.000" in history.problems[0].message
    assert [job.id for job in history.jobs] == ["10.0", "10.1", "10.2"]


def test_other_files_are_reported(tmp_path):
    shutil.copy(LOG, tmp_path / "job.log")
    (tmp_path / "job.out").write_text("hello\n")
    history = read_history([str(tmp_path / "*")])
    assert len(history.jobs) == 3
    assert [(problem.path, problem.line) for problem in history.problems] == [(str(tmp_path / "job.out"), 0)]


def test_progress(tmp_path):
    counts = []
    read_history([str(LOG)], counts.append)
    assert sum(counts) == LOG.read_text().count("\n...\n")


@pytest.mark.parametrize(
    ("files", "argument", "error_type", "message"),
    [
        ({}, "nothing.log", NotFoundError, "there is no file"),
        ({}, ".", NotFoundError, "there is no log in the folder"),
        ({"a.txt": "hello\n"}, "a.txt", UsageError, "is neither an HTCondor user log, nor Slurm accounting"),
        ({"log": ""}, "log", UsageError, "is empty: it has no events yet"),
        (
            {"a.csv": "job,outcome\n", "b.log": "..."},
            "*",
            UsageError,
            "is a job table, which cannot be combined with other files",
        ),
        ({"a.csv": b"job,outcome\n1,success\n\xff,failed\n"}, "a.csv", UsageError, "line 3: not valid UTF-8"),
    ],
)
def test_errors(tmp_path, files, argument, error_type, message):
    for name, text in files.items():
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(error_type, match=message) as error:
        read_history([str(tmp_path / argument)])
    assert "\n" not in str(error.value)
