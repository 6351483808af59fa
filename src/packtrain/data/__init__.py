"""What the data commands do with files and indexes of the user: download, upload, checksums, index, preview, cache.

`cli.commands.data` parses arguments and prints; `api.fetch` calls the same functions. Nothing here is about runs.
"""
