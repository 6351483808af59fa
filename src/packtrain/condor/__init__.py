"""condor."""
