"""The program that runs a job on the worker: probe → fetch → unpack → steps → check → sync → clean.

An *attempt* is what packtrain submits for a job. Each time the pool starts it, one agent process runs one *execution*.
A *stage* is one of the seven phases above. A *step* is an entry of the workflow's `steps`. The *sandbox* is the folder
that holds the inputs and outputs while the agent runs; the *attempt folder* holds the journal and logs and outlives it.

Start reading with `main` (the command line), then `attempt` (the order of the stages) and `context` (what every stage
receives). `sandbox` owns every path, `stop_request` and `time_limits` end an attempt early. The packages are `stages`
(probe, fetch, unpack, run steps), `steps` (interprets the workflow's steps), `environments` (host or container),
`processes` (starts and ends programs), `checkpoints`, `outputs` and `live` (progress reports during the run).

The agent uses the standard library only and supports Python 3.9, so that it runs in any image. The submit side never
imports it.
"""
