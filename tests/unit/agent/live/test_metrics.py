"""The metrics file: new lines, unfinished lines, and lines that are not metrics."""

import pytest

from packtrain.agent.live.metrics import MetricsReader, parse_metrics


def test_new_lines(tmp_path):
    file = tmp_path / "metrics"
    reader = MetricsReader(file)
    assert reader.read() == []
    file.write_text('{"step": 1, "loss": 2.5}\n')
    assert reader.read() == [{"step": 1, "loss": 2.5}]
    assert reader.read() == []


def test_unfinished_line_is_read_later(tmp_path):
    file = tmp_path / "metrics"
    reader = MetricsReader(file)
    file.write_text('{"step": 1}\n{"st')
    assert reader.read() == [{"step": 1}]
    with open(file, "a") as more:
        more.write('ep": 2}\n')
    assert reader.read() == [{"step": 2}]
    assert reader.n_ignored == 0


def test_final_read_takes_unfinished_line(tmp_path):
    file = tmp_path / "metrics"
    reader = MetricsReader(file)
    file.write_text('{"accuracy": 0.9}')
    assert reader.read() == []
    assert reader.read(final=True) == [{"accuracy": 0.9}]


def test_newest_line_of_each_set_of_names(tmp_path):
    file = tmp_path / "metrics"
    file.write_text(
        "".join(f'{{"step": {n}}}\n' for n in range(1000)) + '{"epoch": 1, "accuracy": 0.5}\n{"step": 1000}\n'
    )
    assert MetricsReader(file).read() == [{"step": 1000}, {"epoch": 1, "accuracy": 0.5}]


@pytest.mark.parametrize(
    "line", [b"text", b"[1]", b"{", b'{"a": [1]}', b'{"a": null}', b"\xff\xfe", b"3", b'{"a": {"b": 1}}', b"[" * 100000]
)
def test_invalid_lines_are_counted(tmp_path, line):
    file = tmp_path / "metrics"
    file.write_bytes(line + b'\n{"step": 1}\n\n')
    reader = MetricsReader(file)
    assert reader.read() == [{"step": 1}]
    assert reader.n_ignored == 1


def test_nan_and_infinity_become_strings():
    assert parse_metrics(b'{"a": NaN, "b": -Infinity, "c": 1e999}') == {"a": "nan", "b": "-inf", "c": "inf"}
