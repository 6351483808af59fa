"""HTCondor's file formats and codes: everything specific to HTCondor that is not the engine.

A *ClassAd* is HTCondor's record of attributes, for example of a job. A *submit file* describes jobs for condor_submit.
The *event log* (also called user log) is where HTCondor writes what happens to jobs. A *hold* is HTCondor's way to stop
a job until it is released; its code says why.

Start with `submitfile.load_submit_file` (submit file to workflow), `eventlog` (parsers of event logs) or
`hold_codes`. `classads` is also sent to workers. The engine is in `packtrain.engines.htcondor`.
"""
