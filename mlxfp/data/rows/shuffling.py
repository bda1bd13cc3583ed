"""Shuffle of a dataset: a permutation of all rows, or a buffer in bounded memory for streams."""

from collections.abc import Callable, Iterator
from contextlib import closing

import numpy as np
from attrs import evolve, frozen

from mlxfp.core.arrow.gathering import large_chunks, rows_in
from mlxfp.core.chunks import Indices, RecordBatch, no_rows
from mlxfp.core.datasets import Combinator, Dataset
from mlxfp.core.execution import read_all, row_count
from mlxfp.core.sources import Position, SourceTraits
from mlxfp.data.row_views import Rows, View, check_reorders, rows_at_once
from mlxfp.data.rows import file_shuffles
from mlxfp.data.rows.permuting import permute
from mlxfp.data.rows.shuffle_buffers import ShuffleBuffer
from mlxfp.support.checks import check_integer, check_positive, explain_call
from mlxfp.support.errors import ArgumentError
from mlxfp.support.randomness import fold_in


@explain_call
def shuffle(*, seed: int, buffer: int | None = None, files: int | None = None) -> Callable[[Dataset[Rows]], Dataset[Rows]]:
    """Return the examples in random order. The order depends only on the seed and the epoch.

    Without `buffer`, all orders are equally likely. A dataset with random access (tables, Arrow files, and stages that treat each row
    alone) is read in the new order. Any other dataset is first loaded into memory, in every epoch and at every resume: put `load()` or
    `cache(path)` before `shuffle`, or use `buffer`. `explain` reports this.

    With `buffer=n`, at most n rows of a stream are in memory. Each incoming row replaces a random row of the buffer, and the replaced row
    comes out. A row can move towards the end by any distance, but towards the start by at most n positions.

    With `buffer` alone, rows of the same file stay close together. `files=k` also shuffles the order of the files, keeps k files open and
    takes one row from each open file in turn before the buffer. `files` needs a file reader (`read_jsonl`, `read_csv`, `read_text`,
    `read_parquet`, `read_arrow`, `read_tar`), followed only by stages that treat each row alone, such as `map`, `filter` and `tokenize`.
    Anything else raises `PipelineError`.

    >>> import mlxfp as fp
    >>> [row["x"] for row in fp.pipe(fp.from_examples([{"x": i} for i in range(6)]), fp.shuffle(seed=1))]
    [5, 2, 3, 0, 4, 1]
    """
    check_integer(seed=seed)
    if buffer is None:
        if files is not None:
            raise ArgumentError(
                f"shuffle(files={files!r}) needs a buffer for the rows of the open files. Add buffer=n, or remove files= for an exact "
                "shuffle of all rows."
            )
        return Combinator(_Shuffle, {"seed": seed}, frozenset({"examples", "groups"}))
    check_positive(buffer=buffer)
    if files is None:
        return ShuffleBuffer(seed, buffer)
    check_positive(files=files)
    return Combinator(file_shuffles.Shuffle, {"seed": seed, "buffer": buffer, "files": files}, frozenset({"examples"}))


@frozen(repr=False)
class _Shuffle(View):
    seed: int
    permutes = True  # `split` and the notebook views may read the unshuffled dataset, because only the order differs

    def __attrs_post_init__(self) -> None:
        check_reorders(self.dataset, self)

    @property
    def traits(self) -> SourceTraits:
        advice = "load() or cache(path) before shuffle gives fast random access."
        return evolve(super().traits, gathers=True, keeps_rows=True, reorders=True, advice=advice)

    def rows(self, indices: Indices, epoch: int) -> Indices:
        return self._order(indices, row_count(self.dataset), epoch)

    def in_order(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        with closing(read_all(self.dataset, epoch=epoch, reader="shuffle")) as chunks:
            batches = list(large_chunks(chunks)) or [no_rows(self.schema())]
        gathered = rows_in(batches[0].schema, batches)
        count = int(gathered.starts[-1])
        size = rows_at_once(8 * sum(batch.nbytes for batch in batches), count)
        for first in range(position or 0, count, size):
            stop = min(first + size, count)
            yield gathered.take(self._order(np.arange(first, stop), count, epoch)), stop

    def notes(self) -> tuple[str, ...]:
        if self.indexable:
            source = self.dataset.source
            while isinstance(source, View):
                source = source.dataset.source
            return (f"takes the rows of {source!r} in the new order",)
        return ("gathers all rows in memory, and again when resumed; load() before it keeps them",)

    def _order(self, indices: Indices, count: int, epoch: int) -> Indices:
        return permute(indices, count=count, key=fold_in(0, "shuffle", self.seed, epoch))
