"""values: times, sizes, numbers of GPUs and array indexes."""

from __future__ import annotations

import pytest

from packtrain.slurm.batchfile.values import (
    ArrayIndexes,
    EndSignal,
    parse_array,
    parse_count,
    parse_gpu_count,
    parse_gres_gpus,
    parse_memory_mb,
    parse_node_count,
    parse_signal,
    parse_time_limit,
)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_time_limit, "30", 1800),
        (parse_time_limit, "1:30", 90),
        (parse_time_limit, "2:00:00", 7200),
        (parse_time_limit, "1-12", 129600),
        (parse_time_limit, "1-12:30", 131400),
        (parse_time_limit, "0-00:00:10", 10),
        (parse_time_limit, "UNLIMITED", None),
        (parse_memory_mb, "500", 500),
        (parse_memory_mb, "8g", 8192),
        (parse_memory_mb, "1T", 1 << 20),
        (parse_memory_mb, "1025K", 2),
        (parse_memory_mb, "0", 0),
        (parse_count, "2k", 2048),
        (parse_node_count, "2-4", 2),
        (parse_node_count, "2,4", 2),
        (parse_gpu_count, "2", 2),
        (parse_gpu_count, "a100:2,v100:1", 3),
        (parse_gpu_count, "a100", 1),
        (parse_gres_gpus, "gpu", 1),
        (parse_gres_gpus, "gpu:2", 2),
        (parse_gres_gpus, "nvme:3,gpu:a100:2(S:0,1),gres/gpu:1", 3),
        (parse_gres_gpus, "gpus:2", 0),
        (parse_signal, "B:USR1@120", EndSignal("B:USR1", 120)),
        (parse_signal, "rb:sigterm", EndSignal("B:TERM", 60)),
        (parse_signal, "R:10@5", EndSignal("USR1", 5)),
        (parse_array, "1-10:2%4", ArrayIndexes((1, 3, 5, 7, 9), 4, 2)),
        (parse_array, "5,1,3-4,4,", ArrayIndexes((1, 3, 4, 5))),
        (parse_array, "[0-1]", ArrayIndexes((0, 1))),
        (parse_array, "2-3:5", ArrayIndexes((2,), 0, 5)),
    ],
)
def test_value(parse, text, value):
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_time_limit, "soon"),
        (parse_time_limit, "1:2:3:4"),
        (parse_memory_mb, "8 GB"),
        (parse_memory_mb, "-1"),
        (parse_count, "0"),
        (parse_count, "two"),
        (parse_node_count, ""),
        (parse_signal, "KILL@5"),
        (parse_signal, "USR1@soon"),
        (parse_signal, "999"),
        (parse_array, "5-1"),
        (parse_array, "1-5:0"),
        (parse_array, "a"),
        (parse_array, "1%x"),
        (parse_array, "0-999999999"),
        (parse_array, ",".join(f"{n}-{n + 99998}" for n in range(0, 10**6, 10**5))),
    ],
)
def test_invalid(parse, text):
    with pytest.raises(ValueError, match="should"):
        parse(text)
