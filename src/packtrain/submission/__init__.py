"""From a workflow file to a run on disk.

`prepare` reads, checks and plans a workflow file (a `Submission`), and creates the run's folder and its row in the
store. `preflight` queries the sizes of the inputs in between. Start reading at `prepare.prepare_submission`.
"""
