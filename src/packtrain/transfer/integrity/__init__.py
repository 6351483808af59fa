"""Decide whether downloaded bytes are the right ones.

A *digest* verifies a complete file (`digests`, with `crc32c`); a *checksums file* has a digest for each block, so that
only bad blocks are fetched again (`block_checksums`). Where there is neither, `content_checks` recognizes error pages
and files of the wrong format.
"""
