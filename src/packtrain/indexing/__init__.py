"""Build the index of a dataset by reading only the headers of its archives. Runs on the submit side.

A *member* is an entry of an archive: a file, a folder, a link, a tar inside the tar. A *chain* is a run of members that
follow each other without a gap. A *walk* reads a tar from header to header and records chains in the *archive map*.
Many walks run at the same time, and the map is saved to a *resume file*, so that a later process can continue.

Start reading in `builder`: `build_index` always builds, `get_or_build_index` first looks for an `existing` index.
`archive_reader` reads byte ranges. `tar_scanner`, `zip_scanner` and `listing` find the files of tars, zips and folders;
`grouping` decides which files are samples, and their classes. The index format is in `packtrain.stream`.
"""

from packtrain.indexing.builder import IndexRequest, IndexResult, OnIndexProgress, build_index, get_or_build_index

__all__ = ["IndexRequest", "IndexResult", "OnIndexProgress", "build_index", "get_or_build_index"]
