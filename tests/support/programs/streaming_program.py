"""A program that streams its input, as a job is given it, and writes down what it saw. Without torch."""

from __future__ import annotations

import argparse
import json
import os
import time
import zlib
from dataclasses import replace
from pathlib import Path

from packtrain.stream.job_config import open_job_stream
from packtrain.stream.samples import StreamingSamples


def read_samples(options: argparse.Namespace) -> dict:
    index, settings = open_job_stream(os.environ[options.of] if options.of else None)
    samples = StreamingSamples(index, settings=replace(settings, timeout_s=options.patience))
    found, came = [], []
    for _ in range(options.epochs):
        before = samples.stats.bytes_read
        for start in range(0, len(samples), options.at_once):
            some = samples.__getitems__(range(start, min(start + options.at_once, len(samples))))
            found += [[zlib.crc32(data), label] for data, label in some]
            wait_for_gate(options.gate if not start else None)
        came.append(samples.stats.bytes_read - before)
        wait_until_cached(samples)
    keep = {"keep": str(settings.cache_dir or ""), "keep_bytes": settings.cache_limit_bytes}
    return {"seen": found, "came": came, "classes": list(index.class_names), **keep}


def wait_until_cached(samples: StreamingSamples) -> None:
    """What came last is written after it was handed over."""
    while samples._cache and not samples._cache.has_all(range(len(samples))):
        time.sleep(0.01)


def wait_for_gate(gate: Path | None) -> None:
    if gate:
        (gate.parent / "waits").touch()
    while gate and not gate.exists():
        time.sleep(0.01)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--of", help="the variable of one of several inputs")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--retry-timeout", type=float, default=60)
    parser.add_argument("--gate", type=Path, help="after the first samples, wait until this file exists")
    told = read_samples(parser.parse_args())
    Path(os.environ["PACKTRAIN_OUTPUT"], "seen.json").write_text(json.dumps(told))
