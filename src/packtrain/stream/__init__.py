"""Read the samples of a dataset from remote archives during training, without downloading or unpacking them first.

An *index* is a file that lists where each sample is: archive, offset, size, label and name. A *read group* is a set of
neighbouring samples that one request reads. A *partition* assigns the samples of an epoch to ranks and workers, in
shuffled order; a *cursor* counts the batches that the training has received, so that it can resume mid-epoch.

The package is sent to the worker and needs the standard library alone. Start reading in `samples`, which returns
samples by number or as an iterator: it takes the order from `shuffle` and `cursor`, and reads through `prefetch` (with
`read_plan` and `reader_threads`), `reader` and `replicas`, with a `disk_cache`. `index` reads the file format,
`index_writer` writes it, and `job_config` opens the input of a job. `packtrain.torch.streaming` makes batches for
PyTorch; `packtrain.indexing` builds indexes.
"""
