"""One pass over the samples by one system, in a process of its own; what it saw is one JSON line on stdout.

    python epoch_benchmark.py SYSTEM --www URL --folder DIR --index FILE [--mode raw|decoded] [--samples N] [--keep DIR]

Every system gets the same two workers, batches of 64 and the same `collate`. The clock starts at iter(loader): torch
is imported, the index at hand, datasets and loaders are made. With `--gradient` it stops at the first gradient.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

WORKERS, BATCH, SIDE = 2, 64, 224
_KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
Given = argparse.Namespace


def raw(samples: list[Any]) -> tuple[list[bytes], list[int]]:
    pairs = [_pair(sample) for sample in samples]
    return [data for data, _ in pairs], [int(label) for _, label in pairs]


def decoded(samples: list[Any]) -> tuple[torch.Tensor, list[int]]:
    pairs = [_pair(sample) for sample in samples]
    return torch.stack([_pixels(data) for data, _ in pairs]), [int(label) for _, label in pairs]


def _pair(sample: Any) -> tuple[bytes, int]:
    """The peers that were repacked give dicts; litdata's bytes are a view, which no worker can hand over."""
    return (bytes(sample["jpg"]), sample["cls"]) if isinstance(sample, dict) else sample


def _pixels(data: bytes) -> torch.Tensor:
    import numpy
    from PIL import Image

    image = Image.open(io.BytesIO(data))
    image.draft("RGB", (SIDE, SIDE))
    return torch.from_numpy(numpy.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)).copy())


def packtrain(given: Given, collate: Callable[..., Any]) -> Iterable[Any]:
    from packtrain.torch.streaming import loader

    return loader(
        given.index, f"{given.www}/train.tar", batch_size=BATCH, workers=WORKERS, collate=collate, keep=given.keep
    )


def packtrain_by_pipe(given: Given, collate: Callable[..., Any]) -> Iterable[Any]:
    """Samples in tuples are handed over as torch does it, which takes most of the time of all systems here."""

    def as_tuple(samples: list[Any]) -> tuple[Any, list[int]]:
        data, labels = collate(samples)
        return tuple(data), labels

    return packtrain(given, as_tuple)


class _Files(Dataset[Any]):
    def __init__(self, folder: Path) -> None:
        classes = {name: number for number, name in enumerate(sorted(os.listdir(folder)))}
        self._files = [(str(path), classes[path.parent.name]) for path in sorted(folder.glob("*/*"))]

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> tuple[bytes, int]:
        path, label = self._files[number]
        with open(path, "rb") as file:
            return file.read(), label


def folder(given: Given, collate: Callable[..., Any]) -> Iterable[Any]:
    return DataLoader(_Files(given.folder), BATCH, shuffle=True, num_workers=WORKERS, collate_fn=collate)


def webdataset(given: Given, collate: Callable[..., Any]) -> Iterable[Any]:
    import webdataset as wds

    shards = len(list((given.folder.parent / "www/wds").glob("*.tar")))
    urls = f"{given.www}/wds/s-{{000000..{shards - 1:06}}}.tar"
    data = wds.WebDataset(urls, shardshuffle=shards, empty_check=False).shuffle(1000).to_tuple("jpg", "cls")
    return DataLoader(data, BATCH, num_workers=WORKERS, collate_fn=collate)


def mosaicml(given: Given, collate: Callable[..., Any]) -> Iterable[Any]:
    import streaming

    data = streaming.StreamingDataset(remote="s3://mds/train", local=given.scratch, shuffle=True, batch_size=BATCH)
    return DataLoader(data, BATCH, num_workers=WORKERS, collate_fn=collate)


def litdata(given: Given, collate: Callable[..., Any]) -> Iterable[Any]:
    import litdata as lit
    from litdata.streaming import downloader
    from litdata.streaming.resolver import Dir

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
    options = {
        "endpoint_url": given.www,
        "aws_access_key_id": "x",
        "aws_secret_access_key": "x",
        "region_name": "us-east-1",
    }
    where = Dir(path=given.scratch, url="s3://lit/train")
    data = lit.StreamingDataset(input_dir=where, shuffle=True, storage_options=options)
    return lit.StreamingDataLoader(data, batch_size=BATCH, num_workers=WORKERS, collate_fn=collate, shuffle=True)


SYSTEMS = {
    "packtrain": packtrain,
    "packtrain_by_pipe": packtrain_by_pipe,
    "folder": folder,
    "webdataset": webdataset,
    "mosaicml": mosaicml,
    "litdata": litdata,
}


def _pass(batches: Iterable[Any], most: int | None) -> dict[str, float]:
    began, count, first, labels, size = time.perf_counter(), 0, 0.0, [], 0
    for data, some in batches:
        if not count:
            first, begun = time.perf_counter(), len(some)
        count += len(some)
        labels += some
        size += sum(map(len, data)) if isinstance(data, (list, tuple)) else 0
        if most is not None and count >= most:
            break
    ended = time.perf_counter()
    groups = [len(set(labels[at : at + BATCH])) for at in range(0, len(labels) - BATCH, BATCH)]
    return {
        "samples": count,
        "first_batch_s": first - began,
        "seconds": ended - began,
        "rate": (count - begun) / (ended - first) if count > begun else 0.0,
        "mb": size / 1e6,
        "classes_per_64": statistics.fmean(groups) if groups else 0.0,
        "distinct": len(set(labels)),
    }


def _gradient(batches: Iterable[Any]) -> dict[str, float]:
    """Until the first gradient is there, of a network so small that the data is what takes the time."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 7, stride=4), torch.nn.Flatten(), torch.nn.LazyLinear(200))

    def step(images: torch.Tensor, labels: list[int]) -> float:
        began = time.perf_counter()
        scores = model(images[:, ::4, ::4].permute(0, 3, 1, 2).float() / 255)
        torch.nn.functional.cross_entropy(scores, torch.tensor(labels)).backward()
        return time.perf_counter() - began

    step(torch.zeros(BATCH, SIDE, SIDE, 3, dtype=torch.uint8), [0] * BATCH)  # torch's own first time takes long
    began = time.perf_counter()
    step_s = step(*next(iter(batches)))
    return {"first_gradient_s": time.perf_counter() - began, "step_s": step_s}


def _cpu_s() -> float:
    """Of this process and its workers that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("--www", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--index", type=Path)
    parser.add_argument("--mode", choices=("raw", "decoded"), default="raw")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--gradient", action="store_true")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    os.environ.update(_KEYS, S3_ENDPOINT_URL=given.www, AWS_ENDPOINT_URL=given.www, AWS_ALLOW_HTTP="true")
    given.scratch = tempfile.mkdtemp(prefix=f"{given.system}-")
    batches = SYSTEMS[given.system](given, decoded if given.mode == "decoded" or given.gradient else raw)
    before = _cpu_s()
    passes = [_gradient(batches) if given.gradient else _pass(batches, given.samples) for _ in range(given.epochs)]
    seen = {**passes[-1], "first_pass_s": passes[0].get("seconds", 0.0)}
    seen["cpu_s"] = _cpu_s() - before
    files = [file for file in Path(given.scratch).rglob("*") if file.is_file()]
    seen["extra_disk_mb"] = sum(file.stat().st_blocks for file in files) / 2e3
    seen["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    shutil.rmtree(given.scratch, ignore_errors=True)
    print(json.dumps(seen), flush=True)
    sys.stderr.flush()
    os._exit(0)  # some peers never end by themselves


if __name__ == "__main__":
    main()
