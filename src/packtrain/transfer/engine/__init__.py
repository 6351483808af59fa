"""The download engine: many connections to several sources, which together fill a file or a window in memory.

An object is divided into *blocks*. A *span* is a run of blocks that one connection requests at once. A *source* is a
replica of the object with its statistics. A *block sink* stores the blocks. A *hedge* is a second request for a late
block.

Start with `coordinator`, the shared state, and `worker`, the connections. The decisions are pure:
`scheduler` (which block), `source_stats` (from where), `concurrency` (how many connections).
`file_sink`, `part_file` and `resume_log` store blocks on disk so that another process can resume the download.
"""
