"""Makes an index, by reading of the archives no more than what says where their files are. At the submit side.

`build` and `obtain` (in `making`) are the ways in. An archive is read in places (`remote`, `window`). Tars are walked
through from header to header (`tarwalk`) by many threads (`crew`); what they find is a `chart`, kept in a `journal` so
that a later process goes on; `tars`, `zips` and `folders` read off files, `files` makes samples of them. `ready` looks
for an index that exists already; `braces` reads addresses of many shards.
"""

from packtrain.indexing.builder import IndexRequest, IndexResult, OnIndexProgress, build_index, get_or_build_index

__all__ = ["IndexRequest", "IndexResult", "OnIndexProgress", "build_index", "get_or_build_index"]
