"""Reports on finished and running jobs: time accounting, statistics, findings, charts and one HTML page.

A *job* is executed one or more times. An *execution* is one session on a slot, divided into *phases* (transfer in,
execute, ...). Every second of an execution has one *time use* (useful compute, wasted transfer, ...). A *finding* is
one sentence about the result.

Start with `history`, the data model that all readers produce. Then follow the data: `readers` turn a run, HTCondor
logs or a CSV table into a `JobHistory`, `analysis` computes the numbers, `charts` and `page` render them, and `build`
writes the report. This package only reads. Live views are in `packtrain.views`.
"""
