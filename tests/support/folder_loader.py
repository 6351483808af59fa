"""Run a training program that streams, but read its samples from extracted files, in the same order.

python folder_loader.py FOLDER TRAIN.PY FLAGS…
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
    """Reads the samples of a streaming loader from a folder."""

    folder: Path

    def __iter__(self) -> Iterator:
        cursor, samples = self._cursor, self.samples
        partition, index = cursor.partition(), samples.index
        config, names = partition.config, list(index.names())
        workers = [partition.worker_order(self._rank, worker).sample_numbers() for worker in range(config.num_workers)]
        for batch_number in range(partition.n_batches):
            numbers = islice(workers[batch_number % len(workers)], config.batch_size)
            batch = [
                samples._decode_fn((self.folder / names[number]).read_bytes(), index.labels[number])
                for number in numbers
            ]
            cursor.advance()
            yield default_collate(batch)


if __name__ == "__main__":
    FolderLoader.folder = Path(sys.argv[1])
    packtrain.torch.streaming.StreamingLoader = FolderLoader
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
