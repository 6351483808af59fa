"""The stages of an attempt before its outputs: probe, fetch, unpack, install, steps.

A *stage* is a function of the attempt's context that fills in the statistics for its `stage.ended` event and raises
FailedError if the attempt must end. `probe` checks the machine (with what `machine_facts` measures), `fetch` downloads
the inputs, `unpack` extracts archives, `install` provides the Pixi environment of jobs that have one (`site_pixi`: by
the site's own pixi), `run_steps` runs the workflow's steps. An input is *reused* if the previous execution on this
machine left it behind (`reuse_inputs`), and *streamed* if the program itself reads it during the steps
(`stream_inputs`).

Start reading with `FORWARD_STAGES` in `packtrain.agent.attempt`, which lists the stages in order. The stage functions
`check`, `sync` and `clean` are in `packtrain.agent.outputs` and `packtrain.agent.attempt`.
"""
