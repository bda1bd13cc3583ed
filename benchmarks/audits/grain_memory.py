"""grain: `to_iter_dataset` reads up to 500 items ahead by default, as `ReadOptions` says: a short epoch of large rows is in memory."""

import resource

import grain
import numpy as np


def grown(**options):
    """Return how many megabytes the process has grown in the first half of 200 items of 1 MB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = grain.MapDataset.source(range(200)).map(lambda row: np.full(1_000_000, row % 100, np.int8))
    items = iter(rows.to_iter_dataset(**options))
    for _ in range(100):
        next(items)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024


print("grain", grain.__version__)
print("4 items ahead:", grown(read_options=grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)), "MB; by default:", grown(), "MB")
