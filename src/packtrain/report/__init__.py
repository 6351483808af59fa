"""Runs in pictures: `curves` makes lines of what trainings reported, `plots` draws them. Reads only; not here:
live views (`watch`)."""
