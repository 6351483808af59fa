"""Converts batch scripts of Slurm, shell scripts with `#SBATCH` lines, to workflows. Submit side only.

A *directive* is one option of a `#SBATCH` line. The workflow passes the directives to Slurm unchanged, and also has
what packtrain itself must know: resources, time limit, array, working folder and output files.

Start with `convert.load_batch_file`. `directives` reads the lines as sbatch does, `option_table` lists what happens to
each option, `values` parses their values, and `translate` builds the workflow document with `resources`, `jobs`,
`program` and `log_files`.
"""
