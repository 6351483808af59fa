"""One rank of a training that streams, in a real process group: prints its batches and the skipped samples."""

from __future__ import annotations

import json
import os
import sys
import zlib
from datetime import timedelta

import torch
import torch.distributed as dist

from packtrain.torch import StreamingLoader


def main(index: str, group: str, batch_size: str, num_workers: str, *undecodable: str) -> None:
    def decode(data, label):
        crc = zlib.crc32(data)
        if str(crc) in undecodable:
            raise ValueError("not an image")
        return crc

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", f"file://{group}", timedelta(seconds=120), world_size, rank)
    data = StreamingLoader(
        index,
        batch_size=int(batch_size),
        num_workers=int(num_workers),
        decode_fn=decode,
        collate_fn=list,
        seed=4,
        on_error="skip",
    )
    batches = []
    for batch in data:
        batches.append(batch)
        dist.all_reduce(torch.ones(1))  # hangs if a rank has fewer batches
    position = torch.tensor([data.epoch, len(data)])
    dist.all_reduce(position)
    assert position.tolist() == [world_size * data.epoch, world_size * len(data)]
    dist.destroy_process_group()
    print(json.dumps({"batches": batches, "skipped": [sample.number for sample in data.skipped]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
