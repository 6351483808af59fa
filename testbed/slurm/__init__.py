"""A real Slurm cluster on this machine, without root.

`install` unpacks Slurm of a chosen version and MariaDB for its accounting; `config` writes slurm.conf for nodes and
GPUs that exist in name only; `cluster.Cluster` starts the daemons in a namespace of their own, kills and restarts them.
`make cluster` starts one for interactive use.
"""
