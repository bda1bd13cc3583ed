"""A shuffle over many files: some are open at a time and give rows in turn, and a buffer shuffles these.

The rows of each file are read by a dataset of its own, with the stages of the whole. So a cursor holds one cursor for each open file, and
the files that are still to come need none: their order follows from the seed and the epoch.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import cached_property
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from attrs import frozen

from mlxfp.core.chunks import KEY, ROW, RecordBatch, Schema, concat_chunks, number_joined
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset, Wrapper
from mlxfp.core.execution import run, start
from mlxfp.core.sources import Position, Source, SourceTraits
from mlxfp.core.stages import starts_empty
from mlxfp.data.rows.permuting import permute
from mlxfp.data.rows.shuffle_buffers import ShuffleBuffer
from mlxfp.data.sources.files import FileSource, place
from mlxfp.support.errors import CursorError, PipelineError
from mlxfp.support.randomness import fold_in, fold_in_rows


@frozen(repr=False)
class Shuffle(Wrapper):
    """The rows of files in random order. A position is the cursor of the dataset `stream`."""

    seed: int
    buffer: int
    files: int

    @property
    def traits(self) -> SourceTraits:
        """The rows of `stream`, in another order in each epoch."""
        return attrs.evolve(super().traits, reorders=True, read_parts=lambda: (self.stream,))

    def __attrs_post_init__(self) -> None:
        source = self.dataset.source
        if not isinstance(source, FileSource):
            raise PipelineError(
                f"shuffle(files=) mixes the files of a reader, such as read_jsonl or read_parquet, got {source!r}. Put it behind the "
                "reader and stages that work on each row alone; other data is shuffled without files=."
            )
        keeping = next((stage for stage in self.dataset.stages if not starts_empty(stage)), None)
        if keeping is not None:
            raise PipelineError(
                f"shuffle(files=) reads every file by itself, and {keeping!r} works on the rows of all files. Put it behind shuffle."
            )

    @cached_property
    def stream(self) -> Dataset[Any]:
        """What is read."""
        return Dataset(_FilesInTurn(self.dataset, self.seed, self.files), (ShuffleBuffer(self.seed, self.buffer),))

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        """Read the rows of the files in turn, through the buffer."""
        return run(self.stream, start(epoch, position))

    def children_at(self, position: Position) -> tuple[tuple[Dataset[Any], Cursor], ...]:
        """Return what is read, with its cursor."""
        return tuple((self.stream, cursor) for _, cursor in super().children_at(position))

    def notes(self) -> tuple[str, ...]:
        """Say what is held."""
        return (f"mixes the rows of {self.files:,} open files in turn", *self.stream.stages[0].traits.notes())


@frozen(repr=False)
class _FilesInTurn(Wrapper):
    """A row of each open file in turn. Positions are (files begun, files there are, (number, cursor) of each open file)."""

    seed: int
    files: int

    @property
    def traits(self) -> SourceTraits:
        return attrs.evolve(super().traits, reorders=True, read_parts=lambda: self.read_parts)

    @cached_property
    def read_parts(self) -> tuple[Dataset[Any], ...]:
        """A dataset for each file, with the schemas of the whole."""
        whole: Any = self.dataset.source
        found = whole.files()
        known = attrs.evolve(whole, found=found)
        resolved = self.dataset.resolved
        parts = tuple(attrs.evolve(self.dataset, source=OneFile(known, number), stages=resolved.stages) for number in range(len(found)))
        for part in parts:
            object.__setattr__(part, "resolved", resolved)
        return parts

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        count = len(self.read_parts)
        begun, before, slots = position or (0, count, ())
        if before != count:
            raise CursorError(
                f"The files have changed since the cursor was made: there were {before}, now {count}. Restore them, or start over."
            )
        order = permute(np.arange(count), count=count, key=fold_in(0, "shuffle files", self.seed, epoch)).tolist()
        with ExitStack() as stack:
            opened = [_Open(self, number, epoch, cursor, stack) for number, cursor in slots]
            while True:
                opened, begun = self._filled(opened, order, begun, epoch, stack)
                if not opened:
                    return
                rounds = min(each.held.num_rows for each in opened)
                rows = concat_chunks([each.take(rounds) for each in opened])
                in_turn = np.arange(len(opened) * rounds).reshape(len(opened), rounds).T.ravel()
                yield rows.take(pa.array(in_turn)), (begun, count, tuple((each.number, each.cursor) for each in opened))

    def children_at(self, position: Position) -> tuple[tuple[Dataset[Any], Cursor], ...]:
        """Return the datasets of the open files, each with its cursor."""
        return tuple((self.read_parts[number], cursor) for number, cursor in (position[2] if position else ()))

    def _filled(self, opened: list["_Open"], order: list[int], begun: int, epoch: int, stack: ExitStack) -> tuple[list["_Open"], int]:
        """Return the open files, each with a row at hand: the next file takes the place of one that has ended, and of one that is empty."""
        out: list[_Open] = []
        for one in (*opened, *[None] * (self.files - len(opened))):
            each = one
            while each is None or not each.fill():
                if begun == len(order):
                    break
                each = _Open(self, order[begun], epoch, None, stack)
                begun += 1
            else:
                out.append(each)
        return out, begun


class _Open:
    """One file while it is read. Running machinery, never part of a value."""

    def __init__(self, mixture: _FilesInTurn, number: int, epoch: int, cursor: Cursor | None, stack: ExitStack) -> None:
        self.number, self.cursor = number, cursor  # before the rows at hand
        self.held: Any = None  # these
        self._after: Any = cursor  # behind them
        self._joined = len(mixture.read_parts) > 1
        self._chunks = run(mixture.read_parts[number], start(epoch, cursor))
        stack.callback(self._chunks.close)

    def fill(self) -> bool:
        """Hold at least one row; False at the end of the file."""
        if self.held is None:
            chunk, self._after = next(self._chunks, (None, self.cursor))
            self.held = number_joined(chunk, self.number, self.number) if self._joined and chunk is not None else chunk
        return self.held is not None

    def take(self, count: int) -> Any:
        """Give the first rows that are held."""
        taken, left = self.held.slice(0, count), self.held.num_rows - count
        self.held = self.held.slice(count) if left else None
        self.cursor = self._after.back(left)  # the rows at hand are still to come
        return taken


@frozen(repr=False)
class OneFile(Source):
    """The rows of one file of several, with the columns of all. They are numbered from 0, and their keys are those of no other file.

    Positions are (that of the files, number of the next row).
    """

    source: FileSource
    number: int

    def schema(self) -> Schema:
        """Return the schema of all files."""
        return self.source.schema()

    @property
    def traits(self) -> SourceTraits:
        """What the reader of all files can do, for this file."""
        whole = self.source.traits
        return SourceTraits(
            restricted=whole.restricted and (lambda columns, conditions: self._of(whole.restricted(columns, conditions))),  # type: ignore[misc]  # not None
            marking=whole.marking and (lambda: self._of(whole.marking())),  # type: ignore[misc]  # not None
            file_of=lambda position: self._path,
        )

    def _of(self, source: FileSource) -> "OneFile":
        return OneFile(source, self.number)

    @property
    def _path(self) -> str:
        return self.source.files()[self.number].path

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        """Read the files from the beginning of this one on, up to its end."""
        inner, row = position or (place(self.source.files(), self.number, 0, 0), 0)
        if inner[0] != self.number:
            return
        chunks: Any = self.source.read(epoch, inner)
        with closing(chunks):
            for chunk, after in chunks:
                if after[0] > self.number and after[:3] != (self.number + 1, 0, 0):
                    return  # the file had no more rows, and these are of the next one
                rows = np.arange(row, row + chunk.num_rows)
                keys = fold_in_rows(fold_in(0, epoch, "file", self.number), rows)
                row += chunk.num_rows
                yield chunk.append_column(ROW, pa.array(rows)).append_column(KEY, pa.array(keys)), (after, row)
                if after[0] != self.number:
                    return

    def __repr__(self) -> str:
        return repr(attrs.evolve(self.source, paths=(self._path,)))
