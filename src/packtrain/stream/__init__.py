"""Samples read where they are: no download, no unpacking. Rides to the worker.

`index` is the format: every sample's place, size, class and name, memory-mapped (`names` in little room; `blocks` has
the archives' checksums).
`dataset` gives samples by number or as a stream, and `torch` (it alone imports torch) makes batches of them: start
there. `order` says which samples come when, `cursor` where a training stands; `runs` of neighbours are read by
`reader`, ahead of time by `prefetch`, from `hosts`; `kept` keeps them on disk, `handover` brings them to the training.
"""
