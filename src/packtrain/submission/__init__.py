"""submission."""
