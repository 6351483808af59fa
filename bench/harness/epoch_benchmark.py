"""One epoch of one data loading system in a process of its own; prints its metrics as one JSON line.

    python epoch_benchmark.py SYSTEM --www URL --folder DIR --index FILE [--mode raw|decoded] [--samples N] [--keep DIR]

Every system uses two workers, batches of 64 and the same `collate`. The clock starts at iter(loader), after imports,
index and loaders are ready. With `--gradient` it stops at the first gradient.
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

N_WORKERS, BATCH_SIZE, IMAGE_SIDE = 2, 64, 224
_S3_ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
Arguments = argparse.Namespace


def collate_raw(samples: list[Any]) -> tuple[list[bytes], list[int]]:
    pairs = [_to_pair(sample) for sample in samples]
    return [data for data, _ in pairs], [int(label) for _, label in pairs]


def collate_decoded(samples: list[Any]) -> tuple[torch.Tensor, list[int]]:
    pairs = [_to_pair(sample) for sample in samples]
    return torch.stack([_decode_image(data) for data, _ in pairs]), [int(label) for _, label in pairs]


def _to_pair(sample: Any) -> tuple[bytes, int]:
    """Convert a sample to (bytes, label). Some systems yield dicts; litdata's views cannot be pickled, so copy them."""
    return (bytes(sample["jpg"]), sample["cls"]) if isinstance(sample, dict) else sample


def _decode_image(data: bytes) -> torch.Tensor:
    import numpy
    from PIL import Image

    image = Image.open(io.BytesIO(data))
    image.draft("RGB", (IMAGE_SIDE, IMAGE_SIDE))
    return torch.from_numpy(
        numpy.asarray(image.convert("RGB").resize((IMAGE_SIDE, IMAGE_SIDE), Image.Resampling.BILINEAR)).copy()
    )


def packtrain_loader(args: Arguments, collate: Callable[..., Any]) -> Iterable[Any]:
    from packtrain.torch import StreamingLoader

    return StreamingLoader(
        args.index,
        f"{args.www}/train.tar",
        batch_size=BATCH_SIZE,
        num_workers=N_WORKERS,
        collate_fn=collate,
        cache_dir=args.keep,
    )


class _FolderDataset(Dataset[Any]):
    """Files in class folders."""

    def __init__(self, folder: Path) -> None:
        classes = {name: number for number, name in enumerate(sorted(os.listdir(folder)))}
        self._files = [(str(path), classes[path.parent.name]) for path in sorted(folder.glob("*/*"))]

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> tuple[bytes, int]:
        path, label = self._files[number]
        with open(path, "rb") as file:
            return file.read(), label


def folder_loader(args: Arguments, collate: Callable[..., Any]) -> Iterable[Any]:
    return DataLoader(_FolderDataset(args.folder), BATCH_SIZE, shuffle=True, num_workers=N_WORKERS, collate_fn=collate)


def webdataset_loader(args: Arguments, collate: Callable[..., Any]) -> Iterable[Any]:
    import webdataset as wds

    shards = len(list((args.folder.parent / "www/wds").glob("*.tar")))
    urls = f"{args.www}/wds/s-{{000000..{shards - 1:06}}}.tar"
    data = wds.WebDataset(urls, shardshuffle=shards, empty_check=False).shuffle(1000).to_tuple("jpg", "cls")
    return DataLoader(data, BATCH_SIZE, num_workers=N_WORKERS, collate_fn=collate)


def mosaicml_loader(args: Arguments, collate: Callable[..., Any]) -> Iterable[Any]:
    import streaming

    data = streaming.StreamingDataset(remote="s3://mds/train", local=args.scratch, shuffle=True, batch_size=BATCH_SIZE)
    return DataLoader(data, BATCH_SIZE, num_workers=N_WORKERS, collate_fn=collate)


def litdata_loader(args: Arguments, collate: Callable[..., Any]) -> Iterable[Any]:
    import litdata as lit
    from litdata.streaming import downloader
    from litdata.streaming.resolver import Dir

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
    options = {
        "endpoint_url": args.www,
        "aws_access_key_id": "x",
        "aws_secret_access_key": "x",
        "region_name": "us-east-1",
    }
    input_dir = Dir(path=args.scratch, url="s3://lit/train")
    data = lit.StreamingDataset(input_dir=input_dir, shuffle=True, storage_options=options)
    return lit.StreamingDataLoader(data, batch_size=BATCH_SIZE, num_workers=N_WORKERS, collate_fn=collate, shuffle=True)


LOADERS = {
    "packtrain": packtrain_loader,
    "folder": folder_loader,
    "webdataset": webdataset_loader,
    "mosaicml": mosaicml_loader,
    "litdata": litdata_loader,
}


def _run_epoch(batches: Iterable[Any], max_samples: int | None) -> dict[str, float]:
    started_at, count, first_at, labels, size = time.perf_counter(), 0, 0.0, [], 0
    for data, batch_labels in batches:
        if not count:
            first_at, first_count = time.perf_counter(), len(batch_labels)
        count += len(batch_labels)
        labels += batch_labels
        size += sum(map(len, data)) if isinstance(data, (list, tuple)) else 0
        if max_samples is not None and count >= max_samples:
            break
    ended_at = time.perf_counter()
    classes = [len(set(labels[i : i + BATCH_SIZE])) for i in range(0, len(labels) - BATCH_SIZE, BATCH_SIZE)]
    return {
        "samples": count,
        "first_batch_s": first_at - started_at,
        "seconds": ended_at - started_at,
        "rate": (count - first_count) / (ended_at - first_at) if count > first_count else 0.0,
        "mb": size / 1e6,
        "classes_per_64": statistics.fmean(classes) if classes else 0.0,
        "distinct": len(set(labels)),
    }


def _time_first_gradient(batches: Iterable[Any]) -> dict[str, float]:
    """Measure the time to the first gradient of a network so small that loading dominates."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 7, stride=4), torch.nn.Flatten(), torch.nn.LazyLinear(200))

    def step(images: torch.Tensor, labels: list[int]) -> float:
        started_at = time.perf_counter()
        scores = model(images[:, ::4, ::4].permute(0, 3, 1, 2).float() / 255)
        torch.nn.functional.cross_entropy(scores, torch.tensor(labels)).backward()
        return time.perf_counter() - started_at

    # The first step of torch takes long.
    step(torch.zeros(BATCH_SIZE, IMAGE_SIDE, IMAGE_SIDE, 3, dtype=torch.uint8), [0] * BATCH_SIZE)
    started_at = time.perf_counter()
    step_s = step(*next(iter(batches)))
    return {"first_gradient_s": time.perf_counter() - started_at, "step_s": step_s}


def _cpu_s() -> float:
    """Return the CPU time of this process and its finished workers."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("system", choices=LOADERS)
    parser.add_argument("--www", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--index", type=Path)
    parser.add_argument("--mode", choices=("raw", "decoded"), default="raw")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--gradient", action="store_true")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    os.environ.update(_S3_ENVIRONMENT, S3_ENDPOINT_URL=args.www, AWS_ENDPOINT_URL=args.www, AWS_ALLOW_HTTP="true")
    args.scratch = tempfile.mkdtemp(prefix=f"{args.system}-")
    batches = LOADERS[args.system](args, collate_decoded if args.mode == "decoded" or args.gradient else collate_raw)
    before = _cpu_s()
    epochs = [
        _time_first_gradient(batches) if args.gradient else _run_epoch(batches, args.samples)
        for _ in range(args.epochs)
    ]
    metrics = {**epochs[-1], "first_pass_s": epochs[0].get("seconds", 0.0)}
    metrics["cpu_s"] = _cpu_s() - before
    files = [file for file in Path(args.scratch).rglob("*") if file.is_file()]
    metrics["extra_disk_mb"] = sum(file.stat().st_blocks for file in files) / 2e3
    metrics["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    shutil.rmtree(args.scratch, ignore_errors=True)
    print(json.dumps(metrics), flush=True)
    sys.stderr.flush()
    os._exit(0)  # some systems never exit on their own


if __name__ == "__main__":
    main()
