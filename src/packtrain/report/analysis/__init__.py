"""Analysis of a `JobHistory`: time accounting, statistics, comparisons and findings. All functions are pure.

*Time use* classifies every second of a slot by what came of it. *Statistics* are the numbers of one history; a
*measure* is a statistic that is one number with a label and a unit. A *finding* is one sentence on the statistics.

Start with `time_accounting`, then `statistics.compute_stats` and `findings.collect_findings`.
"""
