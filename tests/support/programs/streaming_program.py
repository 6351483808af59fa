"""A program that streams its input like a job, and writes what it read. Works without torch."""

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
    index, settings = open_job_stream(os.environ[options.variable] if options.variable else None)
    samples = StreamingSamples(index, settings=replace(settings, timeout_s=options.timeout))
    crcs_and_labels, bytes_read = [], []
    for _ in range(options.epochs):
        bytes_before = samples.stats.bytes_read
        for start in range(0, len(samples), options.batch_size):
            batch = samples.__getitems__(range(start, min(start + options.batch_size, len(samples))))
            crcs_and_labels += [[zlib.crc32(data), label] for data, label in batch]
            wait_for_gate(options.gate if not start else None)
        bytes_read.append(samples.stats.bytes_read - bytes_before)
        wait_until_cached(samples)
    return {
        "samples": crcs_and_labels,
        "bytes_read": bytes_read,
        "class_names": list(index.class_names),
        "cache_dir": str(settings.cache_dir or ""),
        "cache_limit_bytes": settings.cache_limit_bytes,
    }


def wait_until_cached(samples: StreamingSamples) -> None:
    """Wait for the last samples, which are cached after they were returned."""
    while samples._cache and not samples._cache.has_all(range(len(samples))):
        time.sleep(0.01)


def wait_for_gate(gate: Path | None) -> None:
    """Wait until the gate exists."""
    if gate:
        (gate.parent / "waits").touch()
    while gate and not gate.exists():
        time.sleep(0.01)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--variable", help="the environment variable of one of several inputs")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--gate", type=Path, help="after the first samples, wait until this file exists")
    report = read_samples(parser.parse_args())
    Path(os.environ["PACKTRAIN_OUTPUT"], "seen.json").write_text(json.dumps(report))
