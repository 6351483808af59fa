"""Parsing the output of sacct: both formats of both versions agree, and damage is named with its line."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest

from packtrain.errors import UsageError
from packtrain.slurm.accounting.parse import is_accounting, parse_accounting
from packtrain.slurm.accounting.record import UnreadableRow
from tests.support.paths import TESTS_DIR
from tests.support.time_zone import utc  # noqa: F401

DATA = TESTS_DIR / "data" / "slurm-accounting"
pytestmark = pytest.mark.usefixtures("utc")
HEADER = "JobID|State|Start|End"


def read_text(version):
    return (DATA / f"{version}.txt").read_text()


def read_json(version):
    return gzip.decompress((DATA / f"{version}.json.gz").read_bytes()).decode()


def parse(text):
    table = parse_accounting(text, "sacct.txt")
    assert table.unreadable == []
    return table.records


def parse_one(header, row):
    (record,) = parse(f"{header}\n{row}\n")
    return record


@pytest.mark.parametrize("version", ["22.05", "26.05"])
def test_text_and_json_agree(version):
    from_text, from_json = parse(read_text(version)), parse(read_json(version))
    by_key = {(record.job_id, record.submitted_at): record for record in from_json}
    assert len(by_key) == len(from_text) == len(from_json)
    for record in from_text:
        other = by_key[record.job_id, record.submitted_at]
        if record.started_at is None:
            assert (record.state, other.state) == ("PENDING", "PENDING")
            continue
        assert record.cpu_s == pytest.approx(other.cpu_s or 0.0, abs=0.002)
        # 22.05 writes neither restarts nor, for users without an association, names, nor exit codes as JSON.
        same = replace(other, cpu_s=record.cpu_s, user=record.user, restarts=0, elapsed_s=record.elapsed_s)
        assert record == (replace(same, exit_code=record.exit_code) if version == "22.05" else same)


@pytest.mark.parametrize("version", ["22.05", "26.05"])
def test_values(version):
    records = {record.name: record for record in parse(read_text(version))}
    success = records["success"]
    assert (success.cpus, success.gpus, success.memory_bytes, success.time_limit_s) == (1, 0, 200 << 20, 1800)
    assert success.cpu_s == pytest.approx(3, abs=0.5)
    assert 60 << 20 < success.peak_memory_bytes < 100 << 20
    assert records["gpus"].gpus == 2
    assert records["failure"].exit_code == 7
    assert records["memory"].exit_code == -9
    assert records["timeout"].state == "TIMEOUT"
    assert records["cancelled"].state == "CANCELLED"
    assert (records["running"].ended_at, records["waiting"].started_at) == (None, None)


@pytest.mark.parametrize(
    "convert",
    [
        lambda text: text.replace("|", "@@"),
        lambda text: text.replace("|", "\t"),
        lambda text: text.replace("\n", "|\n"),  # sacct -p
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\n\n" + text,
    ],
)
def test_other_delimiters(convert):
    assert parse(convert(read_text("26.05"))) == parse(read_text("26.05"))


def test_without_steps():
    lines = read_text("26.05").splitlines()
    table = parse_accounting("\n".join(line for line in lines if "." not in line.split("|")[0]), "x")
    assert not table.has_steps
    assert len(table.records) == len(parse(read_text("26.05")))


@pytest.mark.parametrize(
    ("columns", "values", "expected"),
    [
        ("AllocCPUS|NNodes|ReqMem", "4|2|4Gn", 8 << 30),
        ("AllocCPUS|NNodes|ReqMem", "4|2|2Gc", 8 << 30),
        ("AllocCPUS|NNodes|ReqMem", "4|2|1.50T", 1536 << 30),
        ("ReqMem|AllocTRES", "1M|cpu=1,mem=62.50G,node=1", 62.5 * (1 << 30)),
        ("ReqMem", "0", None),
    ],
)
def test_requested_memory(columns, values, expected):
    assert parse_one(f"{HEADER}|{columns}", f"1|COMPLETED|||{values}").memory_bytes == expected


@pytest.mark.parametrize(
    ("tres", "expected"),
    [("cpu=1", 0), ("gres/gpu=2,gres/gpu:a100=2", 2), ("gres/gpu:a100=2,gres/gpu:v100=1", 3)],
)
def test_gpus(tres, expected):
    assert parse_one(f"{HEADER}|AllocTRES", f"1|COMPLETED|||{tres}").gpus == expected


@pytest.mark.parametrize(
    ("text", "seconds"), [("1-02:03:04", 93784), ("00:03.018", 3.018), ("02:03:04", 7384), ("17", 17), ("", None)]
)
def test_cpu_time(text, seconds):
    assert parse_one(f"{HEADER}|TotalCPU", f"1|COMPLETED|||{text}").cpu_s == seconds


def test_unix_times():
    record = parse_one(HEADER, "12_3|CANCELLED by 1000|1795032978|1795032979")
    assert (record.job_id, record.state, record.started_at) == ("12_3", "CANCELLED", 1795032978)


def test_cancelled_before_it_started():
    """22.05 prints a start and an end for it."""
    row = "1|CANCELLED by 5|2026-11-18T20:00:00|2026-11-18T20:00:00|None assigned"
    assert parse_one(f"{HEADER}|NodeList", row).started_at is None


def test_value_with_line_breaks():
    text = f"{HEADER}|SubmitLine|JobName\n1|FAILED|||sbatch --wrap a\nb\nc|one\n2|FAILED|||x|two\n"
    assert [record.name for record in parse(text)] == ["one", "two"]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("1|COMPLETED|yesterday|", UnreadableRow(2, "column start: 'yesterday' is not a time")),
        ("1|COMPLETED", UnreadableRow(2, "the row has 2 values, but the header has 4")),
        ("one|COMPLETED||", UnreadableRow(2, "'one' is not a job number")),
        ("1|||", UnreadableRow(2, "the state is empty")),
        ("1.0|COMPLETED||", UnreadableRow(2, "the job of the step 1.0 is missing")),
        (
            "1|COMPLETED|||",
            UnreadableRow(
                2,
                "the row has 5 values, but the header has 4; a value contains the delimiter: use another one "
                "(sacct --delimiter)",
            ),
        ),
    ],
)
def test_damaged_row(rows, expected):
    table = parse_accounting(f"{HEADER}\n{rows}\n2|COMPLETED||\n", "sacct.txt")
    assert table.unreadable == [expected]
    assert [record.job_id for record in table.records] == ["2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("JobID|State\n", "sacct.txt, line 1: the columns Start, End are missing; use `sacct -P -D -o JobID,"),
        ("JobID           State ExitCode\n", "sacct.txt, line 1: the columns are separated by spaces"),
        ('{"jobs": [\n{"job_id": 1,\n', "sacct.txt, line 3: not valid JSON"),
        ('{"meta": {}}', "sacct.txt, line 1: there is no list `jobs`"),
    ],
)
def test_unusable_file(text, message):
    assert is_accounting(text)
    with pytest.raises(UsageError) as error:
        parse_accounting(text, "sacct.txt")
    assert str(error.value).startswith(message)


def test_damaged_json_entry():
    text = read_json("26.05").replace('"PREEMPTED"', "17")
    table = parse_accounting(text, "sacct.json")
    assert len(table.unreadable) == 2 and "there is no state" in table.unreadable[0].message
    line = text.splitlines()[table.unreadable[0].line - 1]
    assert '"job_id"' in line
