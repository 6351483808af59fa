"""A program that streams its input, as a job is given it, and writes down what it saw. Without torch."""

from __future__ import annotations

import argparse
import json
import os
import time
import zlib
from dataclasses import replace
from pathlib import Path

from packtrain.stream.job_config import given
from packtrain.stream.samples import Samples


def read(options: argparse.Namespace) -> dict:
    index, settings = given(os.environ[options.of] if options.of else None)
    samples = Samples(index, settings=replace(settings, patience_s=options.patience))
    found, came = [], []
    for _ in range(options.epochs):
        before = samples.counts.bytes
        for start in range(0, len(samples), options.at_once):
            some = samples.__getitems__(range(start, min(start + options.at_once, len(samples))))
            found += [[zlib.crc32(data), label] for data, label in some]
            wait_at(options.gate if not start else None)
        came.append(samples.counts.bytes - before)
        await_kept(samples)
    keep = {"keep": str(settings.keep or ""), "keep_bytes": settings.keep_bytes}
    return {"seen": found, "came": came, "classes": list(index.class_names), **keep}


def await_kept(samples: Samples) -> None:
    """What came last is written after it was handed over."""
    while samples._kept and not samples._kept.has(range(len(samples))):
        time.sleep(0.01)


def wait_at(gate: Path | None) -> None:
    if gate:
        (gate.parent / "waits").touch()
    while gate and not gate.exists():
        time.sleep(0.01)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--of", help="the variable of one of several inputs")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--patience", type=float, default=60)
    parser.add_argument("--gate", type=Path, help="after the first samples, wait until this file exists")
    told = read(parser.parse_args())
    Path(os.environ["PACKTRAIN_OUTPUT"], "seen.json").write_text(json.dumps(told))
