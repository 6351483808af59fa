"""Moving bytes: sources, sinks, fetching, verifying, unpacking, uploading. Rides to the worker.

`api` has the two protocols and is the place to start; `registry` finds the backend of an address.
Backends, one a file: `file`, `http` (over `exchange`, `wire`, `framing`, `connect`, `keep`, `answers`), `s3`
(`sigv4`), `pelican`, `memory`. `fetch` brings an item to a file and `ordered` to a reader: by an `engine` of many
connections (`crew`, `worker`; decided purely in `blocks`, `sources`, `pace`), resumed (`partial`, `ledger`) and
verified (`disk`, `hashing`, `verify`); `unpack`
lands archives safely, from files or on their way (`flow`, `decompress`, `tarheader`, `untar`, `unzip`, `foreign`;
`landing` judges names, `ground` writes, `writer` beside it, within a `room`); `depot` keeps what was fetched for
other jobs (`clone`); `upload` brings a folder to a sink.
Not here: which data a job needs (`plan`), and when it is moved (`agent`).
Heavy modules (ssl, http.client, tarfile, …) are imported where they are used: the agent starts quickly.
"""
