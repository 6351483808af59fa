"""Where the credentials of a run come from, on the submit side only.

Start with `secret_sources`: the references of the workflow (`${env:…}`, `${file:…}`) and how they are read and stored.
`aws_credentials` finds the user's S3 keys, and `url_credentials` turns options of the command line into locations.
"""
