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
from packtrain.torch.streaming import Loader


class FromFiles(Loader):
    folder: Path

    def __iter__(self) -> Iterator:
        cursor, samples = self._cursor, self._samples
        dealt, index = cursor.dealt(), samples.index
        names = list(index.names())
        streams = [dealt.stream(self._rank, worker).numbers() for worker in range(dealt.split.workers)]
        for number in range(dealt.batches):
            chosen = islice(streams[number % len(streams)], dealt.split.batch)
            batch = [samples._decode((self.folder / names[one]).read_bytes(), index.classes[one]) for one in chosen]
            cursor.delivered()
            yield default_collate(batch)


if __name__ == "__main__":
    FromFiles.folder = Path(sys.argv[1])
    packtrain.torch.streaming.Loader = FromFiles
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
