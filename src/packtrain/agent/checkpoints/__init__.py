"""Save, upload and restore the checkpoints of one job.

* A *snapshot* is what the program saved, hard-linked or copied to the staging folder so that it cannot change.
* A *generation* is one uploaded snapshot. Each agent numbers its generations 1, 2, … below its own emitter's prefix, so
  that two attempts of a job never write to the same names.
* The *record* of a generation (`record.json`) lists its files and digests. It is written last: a generation without a
  record does not exist.

Start with `uploader`: its two threads find saves (`detection`) and upload them. `upload_planner` decides the next
action and `upload_executor` performs it on a `store`. `restore` downloads the best generation before the steps run.
`record` defines object names and the record format.
"""
