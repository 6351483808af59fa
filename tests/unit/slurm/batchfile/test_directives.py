"""directives: which options a script has. tests/slurm/test_batch_files.py compares them with sbatch's."""

from __future__ import annotations

import pytest

from packtrain.slurm.batchfile.directives import read_directives, render_directives
from packtrain.slurm.batchfile.option_table import OPTIONS, SHORT_OPTIONS, Argument, Handling
from packtrain.spec.diagnostics import DiagnosticReport, SourceMap


def read(text):
    report = DiagnosticReport(SourceMap("job.sbatch"))
    options = [(directive.name, directive.value) for directive in read_directives(text, report)]
    return options, [str(problem) for problem in report.diagnostics]


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("#SBATCH --nodes=2", [("nodes", "2")]),
        ("#SBATCH --nodes 2 -n4", [("nodes", "2"), ("ntasks", "4")]),
        ("#SBATCH -n 4 -p main # -N 2", [("ntasks", "4"), ("partition", "main")]),
        ("#SBATCH -sH", [("oversubscribe", ""), ("hold", "")]),
        ("#SBATCH -OJname", [("overcommit", ""), ("job-name", "name")]),
        ("#SBATCH --exclusive --nice=5", [("exclusive", ""), ("nice", "5")]),
        ("#SBATCH --part=main --tasks-per-node=2", [("partition", "main"), ("ntasks-per-node", "2")]),
        ("#SBATCH -J \"a b\"'c d'", [("job-name", "a bc d")]),
        ("#SBATCH --gpus=a100:2", [("gpus", "a100:2")]),
        ("#SBATCH --container-image=nvcr.io\\#nvidia/pytorch", [("container-image", "nvcr.io#nvidia/pytorch")]),
        ("##SBATCH --nodes=2", []),
        (" #SBATCH --nodes=2", []),
        ("# SBATCH --nodes=2", []),
        ("#sbatch --nodes=2", []),
        ('#SBATCH "" --nodes=2', []),
        ("#SBATCH", []),
    ],
)
def test_options(line, options):
    assert read(f"#!/bin/bash\n{line}\n") == (options, [])


def test_lines_after_the_first_command_do_not_count():
    text = "#!/bin/bash\n# comment\n\n   \n#SBATCH -N1\n  # another\n#SBATCH -n1\necho\n#SBATCH --hold\n"
    assert read(text)[0] == [("nodes", "1"), ("ntasks", "1")]


def test_plugin_option():
    options, problems = read("#!/bin/sh\n#SBATCH --bank physics --x11 --nodes=1\n")
    assert options == [("bank", "physics"), ("x11", ""), ("nodes", "1")]
    assert "--bank is passed to sbatch, which knows it only if a plugin of the site defines it" in problems[0]


def test_options_of_other_schedulers():
    _, problems = read("#!/bin/sh\n#PBS -l nodes=2\n")
    assert "2:1: warning: #PBS lines are not supported" in problems[0]


def test_rendered_values_are_read_unchanged():
    values = ["a b", "#", 'say "hi"', "it's", "back\\slash", "\t", "a=b", "x\\"]
    options = [("comment", value) for value in values] + [("exclusive", "")]
    assert read(f"#!/bin/sh\n{render_directives(options)}") == (options, [])


def test_table():
    assert set(SHORT_OPTIONS.values()) <= OPTIONS.keys()
    for option in OPTIONS.values():
        assert bool(option.reason) == (option.handling in (Handling.WARNED, Handling.REFUSED)), option
        assert option.argument in Argument
