"""Attempts on an HTCondor pool: `engine` submits and follows them, `text` writes the submit description, `log` reads
the user log and `tracker` makes sightings of it, `queue` asks what only the queue knows, `client` alone speaks with
HTCondor, `transfer` decides how inputs travel, `holds` what a hold means, `homecoming` puts outputs in their place,
`detached` has the supervisor as a job of the access point, `prepare` makes the run's folder ready,
`examine` looks whether an access point is."""

from packtrain.engines.htcondor.condor_engine import CAPABILITIES, HtcondorEngine, capabilities_for

__all__ = ["CAPABILITIES", "HtcondorEngine", "capabilities_for"]
