"""The published week, replayed on a real pool in scaled time.

`fault_schedule` derives from the published table the properties of every node, link and cache, and when they fail.
`replay_federation` is the federation that behaves accordingly, `replay_pool` the pool. `arms` are three ways to run the
same hundred jobs on it; `arm_metrics` computes their metrics. Start reading at `fault_schedule`: all arms get the same
schedule, and it does not depend on them.
"""
