"""Check, list and upload the outputs of one attempt.

* *Outputs* are the files in the output folder of the sandbox when the steps have ended.
* An *expectation* is one entry of the workflow's `expect`: a path pattern with bounds on count and size, and optional
  checks of the content. A *validator* is a built-in check of the content.
* *Sync* moves the outputs to their destination. Outputs of a failed attempt go below `.packtrain/EMITTER/`, outputs of
  a requeued attempt below `.packtrain/requeued/EMITTER/`.

The modules follow the order of an attempt: `collect` copies what a command wrote elsewhere into the output folder,
`check` tests every expectation (with `validators`), `symlinks` resolves links, `inventory` lists the files, and `sync`
uploads them. Start with `check.check_outputs` and `sync.sync_outputs`.
"""
