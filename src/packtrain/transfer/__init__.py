"""Moving bytes: sources, sinks, fetching, verifying, unpacking, uploading. Rides to the worker.

`api` has the two protocols and is the place to start; one backend a file (`file`, `http`, `s3`,
`memory`); `registry` finds the backend of an address; `fetch` brings an item to a file, verified.
Not here: which data a job needs (`plan`), and when it is moved (`agent`).
"""
