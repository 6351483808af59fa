"""Runs a training program that streams, but gives it its samples from extracted files, in the very order of the stream.

python from_files.py FOLDER TRAIN.PY FLAGS…
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from torch.utils.data import default_collate

import packtrain.torch.streaming
from packtrain.torch.streaming import StreamingLoader


class FolderLoader(StreamingLoader):
    folder: Path

    def __iter__(self) -> Iterator:
        cursor, samples = self._cursor, self._samples
        dealt, index = cursor.partition(), samples.index
        names = list(index.names())
        streams = [
            dealt.worker_order(self._rank, worker).sample_numbers() for worker in range(dealt.config.num_workers)
        ]
        for number in range(dealt.n_batches):
            chosen = islice(streams[number % len(streams)], dealt.config.batch_size)
            batch = [samples._decode_fn((self.folder / names[one]).read_bytes(), index.labels[one]) for one in chosen]
            cursor.advance()
            yield default_collate(batch)


if __name__ == "__main__":
    FolderLoader.folder = Path(sys.argv[1])
    packtrain.torch.streaming.StreamingLoader = FolderLoader
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
