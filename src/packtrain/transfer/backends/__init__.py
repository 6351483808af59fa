"""Backends: implementations of `transfer.api.Source` and `Sink`, one for each kind of URL.

`file` for file://, `http` for http(s)://, `s3` for s3://bucket/key, `pelican` for osdf:/// and pelican://. The module
`transfer.registry` chooses the backend of a URL. All pass the conformance suites in tests/contracts.
"""
