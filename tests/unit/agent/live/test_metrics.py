"""Lines of the metrics file become events; nothing a program writes there can hurt."""

import pytest

from packtrain.agent.live.metrics import MetricsReader, parse_metrics


def test_lines_as_they_come(tmp_path):
    file = tmp_path / "metrics"
    reader = MetricsReader(file)
    assert reader.read() == []
    file.write_text('{"step": 1, "loss": 2.5}\n')
    assert reader.read() == [{"step": 1, "loss": 2.5}]
    assert reader.read() == []


def test_half_a_line_waits_for_its_end(tmp_path):
    file = tmp_path / "metrics"
    reader = MetricsReader(file)
    file.write_text('{"step": 1}\n{"st')
    assert reader.read() == [{"step": 1}]
    with open(file, "a") as more:
        more.write('ep": 2}\n')
    assert reader.read() == [{"step": 2}]
    assert reader.n_ignored == 0


def test_the_last_line_needs_no_end(tmp_path):
    file = tmp_path / "metrics"
    reader = MetricsReader(file)
    file.write_text('{"accuracy": 0.9}')
    assert reader.read() == []
    assert reader.read(final=True) == [{"accuracy": 0.9}]


def test_of_equal_names_the_newest_counts(tmp_path):
    file = tmp_path / "metrics"
    file.write_text(
        "".join(f'{{"step": {n}}}\n' for n in range(1000)) + '{"epoch": 1, "accuracy": 0.5}\n{"step": 1000}\n'
    )
    assert MetricsReader(file).read() == [{"step": 1000}, {"epoch": 1, "accuracy": 0.5}]


@pytest.mark.parametrize(
    "line", [b"text", b"[1]", b"{", b'{"a": [1]}', b'{"a": null}', b"\xff\xfe", b"3", b'{"a": {"b": 1}}', b"[" * 100000]
)
def test_what_is_no_metric_is_counted(tmp_path, line):
    file = tmp_path / "metrics"
    file.write_bytes(line + b'\n{"step": 1}\n\n')
    reader = MetricsReader(file)
    assert reader.read() == [{"step": 1}]
    assert reader.n_ignored == 1


def test_numbers_that_json_does_not_have_become_texts():
    assert parse_metrics(b'{"a": NaN, "b": -Infinity, "c": 1e999}') == {"a": "nan", "b": "-inf", "c": "inf"}
