"""Shuffle over many files. Several files are open at a time, their rows are interleaved, and a buffer shuffles the interleaved rows.

Each file becomes a dataset with the stages that precede the shuffle. A cursor of the shuffle holds one cursor for each open file. The
order of the other files follows from the seed and the epoch.
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
from mlxfp.data.sources.files import FileSource, position_in
from mlxfp.support.errors import CursorError, PipelineError
from mlxfp.support.randomness import fold_in, fold_in_rows


@frozen(repr=False)
class Shuffle(Wrapper):
    """Source of the rows of many files in random order. Resume positions are cursors of the dataset `stream`."""

    seed: int
    buffer: int
    files: int

    @property
    def traits(self) -> SourceTraits:
        return attrs.evolve(super().traits, reorders=True, read_parts=lambda: (self.stream,))

    def __attrs_post_init__(self) -> None:
        source = self.dataset.source
        if not isinstance(source, FileSource):
            raise PipelineError(
                f"shuffle(files=) needs a file reader, such as read_jsonl or read_parquet, got {source!r}. Between the reader and "
                "shuffle, only stages that treat each row alone are allowed. For other data, remove files=."
            )
        stateful = next((stage for stage in self.dataset.stages if not starts_empty(stage)), None)
        if stateful is not None:
            raise PipelineError(
                f"shuffle(files=) reads every file separately, but {stateful!r} combines rows of several files. "
                "Put shuffle before this stage."
            )

    @cached_property
    def stream(self) -> Dataset[Any]:
        """Dataset that takes rows from several files in turn and shuffles the rows in a buffer."""
        return Dataset(_FilesInTurn(self.dataset, self.seed, self.files), (ShuffleBuffer(self.seed, self.buffer),))

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        return run(self.stream, start(epoch, position))

    def children_at(self, position: Position) -> tuple[tuple[Dataset[Any], Cursor], ...]:
        return tuple((self.stream, cursor) for _, cursor in super().children_at(position))

    def before(self, chunk: RecordBatch, after: Position) -> Position:
        """Return the cursor at the beginning of `chunk`. The argument `after` is the cursor at the end of `chunk`."""
        return after.back(chunk.num_rows)

    def notes(self) -> tuple[str, ...]:
        return (f"mixes the rows of {self.files:,} open files in turn", *self.stream.stages[0].traits.notes())


@frozen(repr=False)
class _FilesInTurn(Wrapper):
    """Source that takes one row from each open file in turn.

    A resume position is (number of files opened so far, total number of files, (file index, cursor) of each open file).
    """

    seed: int
    files: int

    @property
    def traits(self) -> SourceTraits:
        return attrs.evolve(super().traits, reorders=True, read_parts=lambda: self.read_parts)

    @cached_property
    def read_parts(self) -> tuple[Dataset[Any], ...]:
        """One dataset per file, with the stages and schemas of the original dataset."""
        source: Any = self.dataset.source
        files = source.files()
        listed = attrs.evolve(source, files_before=files)
        resolved = self.dataset.resolved
        parts = tuple(attrs.evolve(self.dataset, source=OneFile(listed, number), stages=resolved.stages) for number in range(len(files)))
        for part in parts:
            object.__setattr__(part, "resolved", resolved)
        return parts

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        count = len(self.read_parts)
        begun, before, slots = position or (0, count, ())
        if before != count:
            raise CursorError(
                f"The files have changed since the cursor was made: there were {before}, now {count}. "
                "Restore the files, or start without a cursor."
            )
        order = permute(np.arange(count), count=count, key=fold_in(0, "shuffle files", self.seed, epoch)).tolist()
        with ExitStack() as stack:
            opened = [_Open(self, number, epoch, cursor, stack) for number, cursor in slots]
            while True:
                opened, begun = self._filled(opened, order, begun, epoch, stack)
                if not opened:
                    return
                rounds = min(file.buffered.num_rows for file in opened)
                rows = concat_chunks([file.take(rounds) for file in opened])
                in_turn = np.arange(len(opened) * rounds).reshape(len(opened), rounds).T.ravel()
                yield rows.take(pa.array(in_turn)), (begun, count, tuple((file.number, file.cursor) for file in opened))

    def children_at(self, position: Position) -> tuple[tuple[Dataset[Any], Cursor], ...]:
        return tuple((self.read_parts[number], cursor) for number, cursor in (position[2] if position else ()))

    def before(self, chunk: RecordBatch, after: Position) -> Position:
        """Return the position at the beginning of `chunk`. The argument `after` is the position at the end of `chunk`.

        The chunk has the same number of rows from each open file. The cursor of each file moves back by this number of rows.
        """
        begun, count, slots = after
        return begun, count, tuple((number, cursor.back(chunk.num_rows // len(slots))) for number, cursor in slots)

    def _filled(self, opened: list["_Open"], order: list[int], begun: int, epoch: int, stack: ExitStack) -> tuple[list["_Open"], int]:
        """Return the open files, each with at least one buffered row. A file without further rows is replaced by the next unopened file."""
        out: list[_Open] = []
        for slot in (*opened, *[None] * (self.files - len(opened))):
            file = slot
            while file is None or not file.fill():
                if begun == len(order):
                    break
                file = _Open(self, order[begun], epoch, None, stack)
                begun += 1
            else:
                out.append(file)
        return out, begun


class _Open:
    """Reader of an open file, with buffered rows and a cursor."""

    def __init__(self, mixture: _FilesInTurn, number: int, epoch: int, cursor: Cursor | None, stack: ExitStack) -> None:
        self.number, self.cursor = number, cursor  # position in the file before the rows in `buffered`
        self.buffered: Any = None  # buffered rows
        self._cursor_after: Any = cursor  # position in the file after the rows in `buffered`
        self._joined = len(mixture.read_parts) > 1
        self._chunks = run(mixture.read_parts[number], start(epoch, cursor))
        stack.callback(self._chunks.close)

    def fill(self) -> bool:
        """Buffer at least one row. Return False at the end of the file."""
        if self.buffered is None:
            chunk, self._cursor_after = next(self._chunks, (None, self.cursor))
            self.buffered = number_joined(chunk, self.number, self.number) if self._joined and chunk is not None else chunk
        return self.buffered is not None

    def take(self, count: int) -> Any:
        """Remove and return the first `count` buffered rows."""
        rows, remaining = self.buffered.slice(0, count), self.buffered.num_rows - count
        self.buffered = self.buffered.slice(count) if remaining else None
        self.cursor = self._cursor_after.back(remaining)  # The cursor must not skip the rows that are still in the buffer.
        return rows


@frozen(repr=False)
class OneFile(Source):
    """Source of the rows of a single file of a `FileSource`. The schema is the schema of the whole `FileSource`.

    Rows are numbered from 0 within the file. The random numbers of a row depend on the epoch, the file index and the row number. Equal row
    numbers in different files therefore give different random numbers.

    A resume position is the pair (position of the `FileSource`, index of the next row).
    """

    source: FileSource
    number: int

    def schema(self) -> Schema:
        return self.source.schema()

    @property
    def traits(self) -> SourceTraits:
        """Properties that the planner needs, derived from the properties of the `FileSource`."""
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
        """Read the file from `position` to its end."""
        inner, row = position or (position_in(self.source.files(), self.number, 0, 0), 0)
        if inner[0] != self.number:
            return
        chunks: Any = self.source.read(epoch, inner)
        with closing(chunks):
            for chunk, after in chunks:
                if after[0] > self.number and after[:3] != (self.number + 1, 0, 0):
                    return  # This chunk comes from the next file, so the current file has no more rows.
                rows = np.arange(row, row + chunk.num_rows)
                keys = fold_in_rows(fold_in(0, epoch, "file", self.number), rows)
                row += chunk.num_rows
                yield chunk.append_column(ROW, pa.array(rows)).append_column(KEY, pa.array(keys)), (after, row)
                if after[0] != self.number:
                    return

    def __repr__(self) -> str:
        return repr(attrs.evolve(self.source, paths=(self._path,)))
