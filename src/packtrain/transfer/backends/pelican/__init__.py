"""pelican."""
