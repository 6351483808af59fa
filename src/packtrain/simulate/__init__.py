"""Simulate runs on a model of a pool: the unchanged supervisor and policies under a virtual clock.

A *pool model* describes sites, caches and how often things fail; `calibrate` derives it from any history that `report`
can read, `whatif` changes it. A *scenario* is what is compared: plain HTCondor, or packtrain with certain policies. A
*session* is one execution on a slot; its *timeline* is sampled when it starts.

Start with `simulate_run`. `event_queue` is the clock, `simulated_pool` has slots, queue and caches, `job_behaviour`
says how a plain wrapper or an agent reacts to faults, `simulated_engine` presents the pool as an Engine, and
`scenario_result` summarizes many runs. Decisions are made by `supervise.policies`, statistics by `report`.
"""
