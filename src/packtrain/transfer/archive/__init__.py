"""Unpack archives safely: tar, zip, gz, bz2 and xz, and 7z and rar with external tools.

A *byte stream* provides the archive, from a file or while it downloads. An *extractor* decides whether the name of each
member is safe. The *extract dir* writes the members, within the *space budget* of the archive.

Start with `unpack`. It detects the format and calls `extract_tar`, `extract_zip` or `external_tools`.
"""
