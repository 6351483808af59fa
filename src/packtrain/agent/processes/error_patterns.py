"""Classification of a failure by the last line that a program printed, as a literal table: the first match counts.

The patterns match only messages of the system, Python, CUDA and packtrain. Other output of a program is no evidence.
"""

from __future__ import annotations

import re

from packtrain.events.failure import FAILURE_KINDS

_STATUS_NOT_FOUND = 127  # a shell's status for a command that is not found

ERROR_PATTERNS: tuple[tuple[str, str], ...] = (
    (r"^(\w+\.)*ModuleNotFoundError: No module named ", "module_missing"),
    (r"^ImportError: .*cannot open shared object file", "module_missing"),
    (r"\[Errno 38\]|: Function not implemented$", "filesystem_unusable"),
    (r"\[Errno (5|107|116)\]|: (Input/output error|Stale file handle)$", "filesystem_unusable"),
    (r"\[Errno (28|122)\]|: (No space left on device|Disk quota exceeded)$", "disk_full"),
    (r"CUDA out of memory|torch\.(cuda\.)?OutOfMemoryError", "gpu_out_of_memory"),
    (r"no kernel image is available|CUDA driver version is insufficient|no CUDA-capable device", "gpu_unusable"),
    (r"uncorrectable ECC error|CUDA-capable device\(s\) is/are busy|Found no NVIDIA driver", "gpu_unusable"),
    (r"\[Errno (101|113)\]|: (Network is unreachable|No route to host)\.?$", "network_unreachable"),
    (r"\[Errno -[235]\]|: (Temporary failure in name resolution|Name or service not known)\.?$", "host_unknown"),
    (r"DefaultCPUAllocator: (not enough|can't allocate) memory|\[Errno 12\]|^MemoryError$", "out_of_memory"),
    (r"\[Errno 2\]|: No such file or directory$", "file_missing"),
)
DEFAULT_KIND = "step_failed"
_STREAM_ERROR = re.compile(r"samples cannot be read \((\w+)\): ")  # the message of packtrain.stream.samples
_COMPILED_PATTERNS = tuple((re.compile(pattern), kind) for pattern, kind in ERROR_PATTERNS)


def classify_error(exit_code: int, last_line: str) -> str:
    """Return the failure kind of a program, step_failed if no pattern matches.

    Args:
        exit_code: How the program ended.
        last_line: The last non-empty line it printed to stderr.
    """
    if exit_code == _STATUS_NOT_FOUND and re.search(r"not found|No such file or directory", last_line):
        return "program_missing"
    stream_error = _STREAM_ERROR.search(last_line)
    if stream_error and stream_error.group(1) in FAILURE_KINDS:
        return stream_error.group(1)
    return next((kind for pattern, kind in _COMPILED_PATTERNS if pattern.search(last_line)), DEFAULT_KIND)
