"""Showing a run: `feed` follows the store, `terminal` draws it, `lines` tells it plainly, `figures`
puts numbers into words. Views only read."""
