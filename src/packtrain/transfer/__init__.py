"""Move bytes: download, verify, cache, unpack and upload. Runs on the submit side and on the worker.

A *location* is an address with its credentials. A *backend* reads and writes locations of one protocol, as a *source*
or a *sink*. A *replica* is one server that has an object; a file may have several. A *digest* verifies a complete file,
a *checksums file* each of its blocks.

Start with `api`, the protocols of the backends, and `fetch`, which downloads a file.

* `registry` selects the backend of a URL; the package `backends` has one module or package per protocol, and `http` is
  the HTTP client below them.
* `fetch` and `ordered_download` download a file to disk or to a reader, with the package `engine`.
* `cache` shares downloads between jobs; the package `archive` unpacks them; `upload` uploads folders.
* The package `integrity` decides whether the bytes are right; `credentials` finds the user's tokens.

Which data a job needs is decided in `plan`, and when it is moved in `agent`. Heavy modules (ssl, hashlib, tarfile and
others) are imported where they are used, so that the agent starts quickly.
"""
