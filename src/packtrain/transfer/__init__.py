"""Moving bytes: sources, sinks, fetching, verifying, unpacking, uploading. Rides to the worker.

`api` has the two protocols and is the place to start; `registry` finds the backend of an address.
Backends, one a file: `file`, `http` (over `exchange`, `connect`, `answers`), `s3` (`sigv4`), `pelican`,
`memory`. `fetch` brings an item to a file, verified (`pump`, `partial`, `patience`, `verify`); `unpack`
lands archives safely (`landing`, `untar`, `unzip`, `foreign`); `upload` brings a folder to a sink.
Not here: which data a job needs (`plan`), and when it is moved (`agent`).
Heavy modules (ssl, http.client, tarfile, …) are imported where they are used: the agent starts quickly.
"""
