"""What can be done with an existing run. The command line and the Python API share these functions.

`control` starts supervisors and cancels jobs; `outputs`, `logs` and `reports` read results; `secrets` keeps the run's
secrets. Finding a run and its state is part of `services`.
"""
