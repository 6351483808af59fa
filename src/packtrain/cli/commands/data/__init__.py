"""Commands about data files: get, put, checksums, index, preview, cache."""
