"""What a person may name: files, folders, globs, rotated and compressed logs, many at once."""

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
THREE = LOGS / "46-three-procs.log"


def parted(text):
    """After the tenth event."""
    at = sum(len(part) + 4 for part in text.split("...\n")[:10])
    return text[:at], text[at:]


def test_a_folder_of_logs(tmp_path):
    history = read_history([str(LOGS)])
    assert history.name == "17 logs"
    assert len(history.jobs) == len({job.id for job in history.jobs}) == 23
    assert "9.0 (45-late-materialization.log)" in {job.id for job in history.jobs}  # 08 has a job of that number, too


def test_a_glob():
    assert len(read_history([str(LOGS / "4*.log")]).jobs) == 8


def test_the_same_log_twice_is_told_once(tmp_path):
    shutil.copy(THREE, tmp_path / "copy.log")
    assert [job.id for job in read_history([str(THREE), str(THREE), str(tmp_path / "copy.log")]).jobs] == [
        "10.0",
        "10.1",
        "10.2",
    ]


@pytest.mark.parametrize(("old", "packed"), [("log.old", False), ("log.1", False), ("log.1.gz", True)])
def test_a_rotated_log_is_read_with_its_older_part(tmp_path, old, packed):
    first, second = parted(THREE.read_text())
    (tmp_path / old).write_bytes(gzip.compress(first.encode()) if packed else first.encode())
    (tmp_path / "log").write_text(second)
    whole = read_history([str(THREE)]).jobs
    assert read_history([str(tmp_path / "log")]).jobs == whole
    assert read_history([str(tmp_path / "*")]).jobs == whole


def test_the_oldest_part_comes_first(tmp_path):
    parts = THREE.read_text().split("...\n")
    for number, name in enumerate(("log.3", "log.2", "log.1", "log")):
        (tmp_path / name).write_text("...\n".join([*parts[number * 6 : number * 6 + 6], ""]))
    rest = "...\n".join(parts[24:])
    (tmp_path / "log").write_text((tmp_path / "log").read_text() + rest)
    assert read_history([str(tmp_path / "log")]).jobs == read_history([str(THREE)]).jobs


@pytest.mark.parametrize("form", ["job.{}", "log.1234.{}"])
def test_logs_with_the_number_of_a_process_are_no_parts_of_one(tmp_path, form):
    """Each has a job of the same number, as logs of one cluster may: of one log they would be one job used again."""
    text = (LOGS / "01-success-gpu-transfer.log").read_text()
    for number in range(3):
        (tmp_path / form.format(number)).write_text(text.replace("(002.000", f"(002.00{number}"))
    (tmp_path / "job").write_text("#!/bin/sh\n# no log\n")
    history = read_history([str(tmp_path / form.format("*"))])
    assert history.name == "3 logs"
    assert [job.id for job in history.jobs] == ["2.0", "2.1", "2.2"]


def test_a_rotated_log_whose_name_ends_with_a_number(tmp_path):
    first, second = parted(THREE.read_text())
    (tmp_path / "job.5.1").write_text(first)
    (tmp_path / "job.5").write_text(second)
    assert (
        read_history([str(tmp_path / "job.5")]).jobs
        == read_history([str(tmp_path / "job.5*")]).jobs
        == read_history([str(THREE)]).jobs
    )


def test_two_logs_whose_beginnings_are_lost_tell_of_two_jobs(tmp_path):
    """Of the same number: nothing says that they are the same job."""
    end = "\n\t(1) Normal termination (return value {})\n...\n"
    for number, name in enumerate(("a", "b")):
        (tmp_path / name).mkdir()
        text = f"005 (007.000.000) 2026-11-16 0{number}:00:00 Job terminated.{end.format(number)}"
        (tmp_path / name / "log").write_text(text)
    jobs = read_history([str(tmp_path / "a"), str(tmp_path / "b")]).jobs
    assert [(job.id, job.outcome) for job in jobs] == [("7.0", Outcome.SUCCEEDED), ("7.0 (log)", Outcome.FAILED)]


def test_a_compressed_log_that_is_cut_off(tmp_path):
    packed = gzip.compress((LOGS / "45-late-materialization.log").read_bytes())
    (tmp_path / "log.gz").write_bytes(packed[: len(packed) * 2 // 3])
    history = read_history([str(tmp_path / "log.gz")])
    assert history.jobs
    assert history.name == "log.gz"


def test_a_log_that_grows(tmp_path):
    first, _ = parted(THREE.read_text())
    log = tmp_path / "log"
    log.write_text(first + "005 (010.000.000) 2026-11-15 18")
    history = read_history([str(log)])
    assert {job.outcome for job in history.jobs} == {Outcome.RUNNING}
    assert history.n_skipped == 1
    assert history.problems[0].line == first.count("\n") + 1
    assert "still being written" in history.problems[0].message
    shutil.copy(THREE, log)
    assert read_history([str(log)]).jobs == read_history([str(THREE)]).jobs


def test_broken_events_are_counted(tmp_path):
    log = tmp_path / "log"
    log.write_text(THREE.read_text().replace("001 (010.000.000)", "001 (010.000"))
    history = read_history([str(log)])
    assert history.n_skipped == 1
    assert history.problems[0].path == str(log)
    assert "001 (010.000" in history.problems[0].message
    assert [job.id for job in history.jobs] == ["10.0", "10.1", "10.2"]


def test_other_files_beside_logs_are_told_not_fatal(tmp_path):
    shutil.copy(THREE, tmp_path / "job.log")
    (tmp_path / "job.out").write_text("hello\n")
    history = read_history([str(tmp_path / "*")])
    assert len(history.jobs) == 3
    assert [(problem.path, problem.line) for problem in history.problems] == [(str(tmp_path / "job.out"), 0)]


def test_progress_is_told(tmp_path):
    told = []
    read_history([str(THREE)], told.append)
    assert sum(told) == THREE.read_text().count("\n...\n")


@pytest.mark.parametrize(
    ("files", "named", "kind", "said"),
    [
        ({}, "nothing.log", NotFoundError, "there is no file"),
        ({}, ".", NotFoundError, "there is no log in the folder"),
        ({"a.txt": "hello\n"}, "a.txt", UsageError, "is neither a user log of HTCondor nor a table of jobs"),
        ({"log": ""}, "log", UsageError, "is empty: nothing has happened yet"),
        ({"a.csv": "job,outcome\n", "b.log": "..."}, "*", UsageError, "cannot be read together with other files"),
        ({"a.csv": b"job,outcome\n1,success\n\xff,failed\n"}, "a.csv", UsageError, "line 3: this is not UTF-8"),
    ],
)
def test_what_cannot_be_read_gets_one_sentence(tmp_path, files, named, kind, said):
    for name, text in files.items():
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(kind, match=said) as error:
        read_history([str(tmp_path / named)])
    assert "\n" not in str(error.value)
