"""One rank of a training by streaming, in a real process group: says what each batch had, and what was skipped."""

from __future__ import annotations

import json
import os
import sys
import zlib
from datetime import timedelta

import torch
import torch.distributed as dist

from packtrain.torch.streaming import make_streaming_loader


def main(index: str, group: str, batch_size: str, workers: str, *unusable: str) -> None:
    def decode(data, label):
        found = zlib.crc32(data)
        if str(found) in unusable:
            raise ValueError("not an image")
        return found

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", f"file://{group}", timedelta(seconds=120), world, rank)
    data = make_streaming_loader(
        index,
        batch_size=int(batch_size),
        num_workers=int(workers),
        decode_fn=decode,
        collate_fn=list,
        seed=4,
        on_error="skip",
    )
    batches = []
    for batch in data:
        batches.append(batch)
        dist.all_reduce(torch.ones(1))  # a rank with fewer batches would be waited for
    left = torch.tensor([data.epoch, len(data)])
    dist.all_reduce(left)
    assert left.tolist() == [world * data.epoch, world * len(data)]
    dist.destroy_process_group()
    print(json.dumps({"batches": batches, "bad": [bad.number for bad in data.skipped]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
