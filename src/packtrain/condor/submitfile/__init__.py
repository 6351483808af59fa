"""HTCondor's submit files as they are: read, and translated into a workflow. Submit side only.

Start with `load.load_submit_file`. `lines`, `macros`, `conditions`, `queue` and `reader` read the language without any
I/O of their own (`around` is what they may ask of the world); `quoting` knows how arguments and variables are written;
`jobs` is the table of what differs from job to job; `keys` says what becomes of each key; `translate`, `program`,
`needs` and `files` make the workflow's document of it; `wrapper` looks into the program's script.
Not here: running anything, and the `htcondor:` lines beyond passing them on (`engines.htcondor`).
"""

from packtrain.condor.submitfile.convert import ConvertedSubmitFile, is_submit_file, load_submit_file

__all__ = ["ConvertedSubmitFile", "is_submit_file", "load_submit_file"]
