"""A file transfer plugin of HTCondor for osdf, pelican, http, https and s3, on packtrain's own fetch engine.

Start with `main` (the command line that HTCondor calls). `access` knows who is let in where, `moving` moves one file,
`results` writes the answers. Standard library only, Python 3.9: it rides with jobs as `packtrain-plugin.pyz`, which
`packtrain plugin` writes. Not here: how files are fetched (`transfer`).
"""
