"""The published week, replayed on a real pool in scaled time.

`fate` draws from the published table what every machine, line and cache is like and when it fails; `caches` is the
federation that acts so, `site` the pool; `arms` are three ways to run the same hundred jobs on it; `account` has their
figures. Start with `fate`: all arms meet the same fate, and nothing in it knows of arms.
"""
