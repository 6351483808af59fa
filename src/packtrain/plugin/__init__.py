"""An HTCondor file transfer plugin for osdf, pelican, http, https and s3 URLs, built on packtrain's fetch engine.

HTCondor writes *transfer requests* to a file, calls the plugin, and reads *transfer results* from another. *Job
credentials* are the tokens and keys that HTCondor provides to the job.

Start with `main` (the command line that HTCondor calls). `job_credentials` finds credentials, `file_transfer` transfers
one file, `transfer_results` writes the results. Standard library only, Python 3.9: jobs carry it as
`packtrain-plugin.pyz`, which `packtrain plugin` writes.
"""
