"""Runs in a pool that does not exist: the unchanged supervisor and policies under a virtual clock.

`world` says what a pool is like, `calibrate` reads that from what happened (any history that `report` can read),
`whatif` changes it. `kernel` is the clock, `pool` has slots, queue and caches, `courses` say what happens during one
stay on a slot, `engine` is the pool as an Engine. `policy` is what is compared, `play` plays one run, `result` sums up
many. Start with `play`. Not here: what policies decide (`supervise.policies`) and what figures mean (`report`).
"""
