"""Moving bytes: sources, sinks, fetching, verifying, unpacking, uploading. Rides to the worker.

`api` has the two protocols and is the place to start; `registry` finds the backend of an address.

* Backends, one a file: `file`, `http`, `s3` (`sigv4`, `s3wire`, `multipart`), `pelican` (`director`, `federated`,
  `propfind`, `tokens`), `memory`.
* Below http: `exchange` (one request, redirects), `wire`, `framing`, `fields`, `answers` (what came), `connect`,
  `proxies`, `relay` (TLS in a process of its own), `keep`, `translate` (what the network throws, as sentences).
* `fetch` brings an item to a file, `ordered` to a reader: by an `engine` of connections (`crew`, `worker`), decided
  purely in `blocks`, `sources`, `pace`; into `buffers`; resumed (`partial`, `ledger`); verified (`disk`, `hashing`,
  `verify`).
* `unpack` lands archives safely, from files or on their way (`flow`, `decompress`, `tarheader`, `untar`, `unzip`,
  `foreign`; `landing` judges names, `ground` writes, `writer` beside it, within a `room`).
* `depot` keeps what was fetched for other jobs (`clone`); `upload` brings a folder to a sink.

Not here: which data a job needs (`plan`), and when it is moved (`agent`).
Heavy modules (ssl, hashlib, tarfile, …) are imported where they are used: the agent starts quickly.
"""
