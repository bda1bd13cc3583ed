"""Packing by index: the rows follow from the lengths of the documents alone, so any packed row can be read without earlier rows."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.ragged import ends_of
from mlxfp.core.chunks import Indices, RecordBatch, Schema
from mlxfp.core.datasets import Dataset
from mlxfp.core.execution import read_all, row_task
from mlxfp.core.nodes import children
from mlxfp.core.planning import head
from mlxfp.core.sources import SourceTraits, Task
from mlxfp.data.lengths.tokens import lengths_of
from mlxfp.data.row_views import View


@frozen(eq=False)
class PackingPlan:
    """Pieces of documents in the order of the packed rows. A document without cuts is one piece."""

    documents: NDArray[np.integer[Any]]  # index of the document of each piece
    firsts: NDArray[np.int32]  # first token of each piece in its document
    sizes: NDArray[np.int32]  # number of tokens of each piece
    ends: Indices  # 0, then the number of pieces up to the end of each row

    def take(self, rows: Indices) -> "PackingPlan":
        """Return the part of the plan for the packed rows at these indices, int64[N]."""
        counts = self.ends[rows + 1] - self.ends[rows]
        ends = ends_of(counts)
        pieces = np.repeat(self.ends[rows] - ends[:-1], counts) + np.arange(ends[-1])
        return PackingPlan(self.documents[pieces], self.firsts[pieces], self.sizes[pieces], ends)


def has_lengths(dataset: Dataset[Any]) -> bool:
    """Return True if the rows keep their order in all epochs, and row lengths are in memory or in memory-mapped files."""
    if dataset.reorders or any(stage.traits.projection is None for stage in dataset.stages):
        return False
    source, inner = dataset.source, children(dataset.source)
    if inner:
        return source.indexable and (source.traits.gathers or all(map(has_lengths, inner)))
    return source.traits.restricted is not None and source.indexable


@frozen(repr=False)
class PackedRows(View):
    """Source of packed rows with random access. The plan of all rows is computed once, from the lengths of all documents."""

    packing: Any  # stage that packs a stream of documents
    columns: tuple[str, ...] = field(kw_only=True)  # column of ids, then the aligned columns

    @property
    def traits(self) -> SourceTraits:
        """Traits with the maximum row length of the stage."""
        return evolve(super().traits, longest_row=self.packing.traits.longest_row, read_parts=lambda: (self.stream,))

    @cached_property
    def stream(self) -> Dataset[Any]:
        """Documents packed in order."""
        return evolve(self.dataset, stages=(*self.dataset.stages, self.packing))

    @cached_property
    def plan(self) -> PackingPlan:
        """Documents of all rows."""
        ids, name = evolve(self.dataset, columns=self.columns[:1]), self.columns[0]
        lengths = [lengths_of(chunk, name, "pack") for chunk in read_all(ids, reader="pack")]
        plan: PackingPlan = self.packing.plan(np.concatenate([np.empty(0, np.int64), *lengths]))
        return plan

    @cached_property
    def documents(self) -> Dataset[Any]:
        """Documents with the packed columns."""
        return evolve(self.dataset, columns=self.columns)

    def rows(self, indices: Indices, epoch: int) -> Indices:
        """Return the index of the first document of each row."""
        return self.plan.documents[self.plan.ends[indices]].astype(np.int64)

    def task(self, epoch: int, indices: Indices) -> Task:
        plan = self.plan.take(indices)
        return _Packed(row_task(self.documents, epoch, plan.documents.astype(np.int64)), self.packing, plan)

    def schema(self) -> Schema:
        schema: Schema = self.packing.schema(super().schema())
        return schema

    def head(self) -> Iterator[RecordBatch]:
        return head(self.stream)

    def length(self) -> int | None:
        return None

    def exact_length(self) -> int:
        return len(self.plan.ends) - 1

    def notes(self) -> tuple[str, ...]:
        return ("plans all rows from the lengths of the documents, and reads rows by index",)

    def __repr__(self) -> str:
        return repr(self.packing)


@frozen(eq=False)
class _Packed(Task):
    documents: Task  # one row for each piece
    packing: Any
    plan: PackingPlan

    @property
    def rows(self) -> int:
        return len(self.plan.ends) - 1

    def read(self) -> RecordBatch:
        rows: RecordBatch = self.packing.gathered(self.documents.read(), self.plan)
        return rows

    def sent_to(self, workers: str) -> Task:
        return _Packed(self.documents.sent_to(workers), self.packing, self.plan)
