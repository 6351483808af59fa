"""Engines run attempts: on this machine (`local`) or on an HTCondor pool (`htcondor`).

An *attempt* (id `JOB-N`) is what the supervisor submits for a job. An *execution* is one start of an attempt by the
pool; HTCondor may start the same attempt several times. A *native id* is the engine's own name for an attempt, such as
a process id or `CLUSTER.PROC`. The *agent* is the program that carries out an attempt on the worker.

Start with `api`, the protocol that every engine implements; tests/contracts/test_engine_contract.py checks it.
`updates` lists what an engine reports about attempts.
`bundle` builds the zip files that are sent to workers. Deciding what to run is the job of `packtrain.supervise`.
"""
