"""Shuffle: an exact permutation of all rows, or a bounded buffer for streams."""

from collections.abc import Callable, Iterator
from contextlib import closing

import numpy as np
from attrs import evolve, frozen

from mlxfp.core.arrow.gathering import large_chunks, rows_in
from mlxfp.core.chunks import CHUNK_ROWS, Example, Indices, RecordBatch, no_rows
from mlxfp.core.datasets import Combinator, Dataset
from mlxfp.core.execution import read_all, row_count
from mlxfp.core.sources import Position, SourceTraits
from mlxfp.data.rows import file_shuffles
from mlxfp.data.rows.permuting import permute
from mlxfp.data.rows.row_views import View
from mlxfp.data.rows.shuffle_buffers import ShuffleBuffer
from mlxfp.support.checks import check_integer, check_positive, explain_call
from mlxfp.support.errors import ArgumentError
from mlxfp.support.randomness import fold_in


@explain_call
def shuffle(*, seed: int, buffer: int | None = None, files: int | None = None) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Put the examples in random order, another one each epoch, the same for the same seed and epoch.

    Without `buffer`, every order of all examples is as likely as any other. Where rows can be taken by number (tables, Arrow files, and
    row-wise stages after them), they are read in the new order; other data is first gathered in memory, which `explain` states.
    With `buffer=n`, for streams: n rows are held, and each row that comes in takes the place of a random one of them, which comes out;
    a row moves backward by at most n places, and forward by any number.

    A buffer alone keeps rows of one file together. With `files=k` as well, the files of a reader (`read_jsonl`, `read_csv`, `read_text`,
    `read_parquet`, `read_arrow`, `read_tar`) come in another order in each epoch; k of them are open at a time and give one row each
    in turn, and the buffer takes these rows. Before it, there may be stages that work on each row alone, such as `map`, `filter`
    and `tokenize`; `PipelineError` for others, and for data that is in no such files.

    >>> import mlxfp as fp
    >>> [row["x"] for row in fp.pipe(fp.from_examples([{"x": i} for i in range(6)]), fp.shuffle(seed=1))]
    [5, 2, 3, 0, 4, 1]
    """
    check_integer(seed=seed)
    if buffer is None:
        if files is not None:
            raise ArgumentError(
                f"files=k mixes what k files give in turn, and a buffer shuffles it: got files={files!r} without buffer. Give both, or "
                "neither for an exact shuffle of all rows."
            )
        return Combinator(_Shuffle, {"seed": seed}, frozenset({"examples"}))
    check_positive(buffer=buffer)
    if files is None:
        return ShuffleBuffer(seed, buffer)
    check_positive(files=files)
    return Combinator(file_shuffles.Shuffle, {"seed": seed, "buffer": buffer, "files": files}, frozenset({"examples"}))


@frozen(repr=False)
class _Shuffle(View):
    seed: int
    permutes = True  # all rows of the dataset come out unchanged, in another order: `split` and notebooks look inside

    @property
    def traits(self) -> SourceTraits:
        advice = "load() or cache(path) before it makes rows quick to take by number."
        return evolve(super().traits, gathers=True, keeps_rows=True, reorders=True, advice=advice)

    def rows(self, indices: Indices, epoch: int) -> Indices:
        return self._order(indices, row_count(self.dataset), epoch)

    def in_order(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        with closing(read_all(self.dataset, epoch=epoch, reader="shuffle")) as chunks:
            held = list(large_chunks(chunks)) or [no_rows(self.schema())]
        gathered = rows_in(held[0].schema, held)
        count = int(gathered.starts[-1])
        for first in range(position or 0, count, CHUNK_ROWS):
            stop = min(first + CHUNK_ROWS, count)
            yield gathered.take(self._order(np.arange(first, stop), count, epoch)), stop

    def notes(self) -> tuple[str, ...]:
        if self.indexable:
            held = self.dataset.source
            while isinstance(held, View):
                held = held.dataset.source
            return (f"takes the rows of {held!r} in the new order",)
        return ("gathers all rows in memory, and again when resumed; load() before it keeps them",)

    def _order(self, indices: Indices, count: int, epoch: int) -> Indices:
        return permute(indices, count=count, key=fold_in(0, "shuffle", self.seed, epoch))
