"""Index plans: the documents of each packed row or group, computed from the document lengths alone.

With an index plan, any packed row or group can be read without the rows before it.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np
from attrs import evolve, field, fields, frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.conditions import Condition
from mlxfp.core.arrow.ragged import ends_of
from mlxfp.core.chunks import Indices, RecordBatch, Schema
from mlxfp.core.datasets import Dataset
from mlxfp.core.execution import read_all, row_task
from mlxfp.core.nodes import children, known_length, label
from mlxfp.core.planning import head
from mlxfp.core.sources import Source, SourceTraits, Task
from mlxfp.data.row_views import View


@frozen(eq=False)
class IndexPlan:
    """Plan of the output rows of `pack`, or of the groups of `bucket_by_length`: the indices of the documents in each row or group."""

    documents: NDArray[np.integer[Any]]  # index of each document
    ends: Indices  # offsets into `documents`: row or group i holds documents[ends[i] : ends[i + 1]]

    def take(self, rows: Indices) -> Self:
        """Return the plan for the packed rows or groups with the indices `rows`, int64[N]."""
        counts = self.ends[rows + 1] - self.ends[rows]
        ends = ends_of(counts)
        pieces = np.repeat(self.ends[rows] - ends[:-1], counts) + np.arange(ends[-1])
        return type(self)(**{f.name: ends if f.name == "ends" else getattr(self, f.name)[pieces] for f in fields(type(self))})


def has_lengths(dataset: Dataset[Any]) -> bool:
    """Return True if groups can be planned from the row lengths before training.

    The rows need the same order in all epochs. Their lengths must be in memory or in memory-mapped files.
    """
    if dataset.reorders or any(stage.traits.projection is None for stage in dataset.stages):
        return False
    source, inner = dataset.source, children(dataset.source)
    if inner:
        return source.indexable and (source.traits.gathers or all(map(has_lengths, inner)))
    return source.traits.restricted is not None and source.indexable


@frozen(repr=False)
class Planned(View):
    """Source that plans all packed rows or groups of a dataset in advance. The packed rows or groups have random access."""

    stage: Any  # stage that packs or groups a stream of documents
    columns: tuple[str, ...] | None = field(default=None, kw_only=True)  # names of the columns to read; None for all columns
    # If this source reads only some columns: the same source with all columns, to take the plan from. Otherwise None.
    whole: "Planned | None" = field(default=None, kw_only=True, eq=False)

    @property
    def traits(self) -> SourceTraits:
        level: Any = self.stage.emits or "examples"
        return evolve(
            super().traits,
            level=level,
            keeps_rows=self.columns is None,
            read_parts=lambda: (self.stream,),
        )

    @cached_property
    def stream(self) -> Dataset[Any]:
        """Dataset with the same output as this source, for reading all documents in order."""
        return evolve(self.dataset, stages=(*self.dataset.stages, self.stage))

    @cached_property
    def plan(self) -> IndexPlan:
        """Document indices of all packed rows or groups. The plan is computed from the lengths of all documents."""
        if self.whole is not None:
            return self.whole.plan
        ids = evolve(self.dataset, columns=(self.stage.column,))
        lengths = map(self.stage.lengths_in, read_all(ids, reader=label(type(self.stage))))
        plan: IndexPlan = self.stage.plan(np.concatenate([np.empty(0, np.int64), *lengths]))
        return plan

    @cached_property
    def documents(self) -> Dataset[Any]:
        """Dataset of the documents, with only the columns in `columns`."""
        return self.dataset if self.columns is None else evolve(self.dataset, columns=self.columns)

    def restricted(self, columns: Sequence[str], conditions: tuple[Condition, ...]) -> Source:
        source: Any = super().restricted(columns, conditions)
        return source if source is self else evolve(source, whole=self)

    def rows(self, indices: Indices, epoch: int) -> Indices:
        """Return the index of the first document of each row or group."""
        return self.plan.documents[self.plan.ends[indices]].astype(np.int64)

    def group_sizes(self, epoch: int, indices: Indices) -> Indices:
        return self.plan.ends[indices + 1] - self.plan.ends[indices]

    def task(self, epoch: int, indices: Indices) -> Task:
        plan = self.plan.take(indices)
        documents = row_task(self.documents, epoch, plan.documents.astype(np.int64))
        return documents if self.columns is None else _Packed(documents, self.stage, plan)

    def schema(self) -> Schema:
        schema: Schema = super().schema()
        if self.whole is not None and self.columns is None:  # without the token column, `stage.schema` would raise an error
            return schema
        packed: Schema = self.stage.schema(schema)
        return packed

    def head(self) -> Iterator[RecordBatch]:
        return head(self.stream)

    def length(self) -> int | None:
        return known_length(self.stream)

    def exact_length(self) -> int:
        count = self.length()
        return len(self.plan.ends) - 1 if count is None else count

    def notes(self) -> tuple[str, ...]:
        return (f"plans all {'rows' if self.columns else 'groups'} from the lengths of the documents, and reads them by index",)

    def __repr__(self) -> str:
        return repr(self.stage)


@frozen(eq=False)
class _Packed(Task):
    documents: Task  # Task that reads the document of each piece. A document cut into two pieces is read twice.
    packing: Any
    plan: IndexPlan

    @property
    def rows(self) -> int:
        return len(self.plan.ends) - 1

    def read(self) -> RecordBatch:
        rows: RecordBatch = self.packing.gathered(self.documents.read(), self.plan)
        return rows

    def sent_to(self, workers: str) -> Task:
        return _Packed(self.documents.sent_to(workers), self.packing, self.plan)


@frozen(repr=False)
class Ungrouped(View):
    """Source that yields the rows of planned groups one by one. The order of the groups, which may be shuffled, is kept."""

    @property
    def traits(self) -> SourceTraits:
        return evolve(super().traits, level="examples", keeps_rows=True)

    @cached_property
    def groups(self) -> Planned:
        """Source that forms the groups. The sources between this source and `Ungrouped` only shuffle the groups."""
        source: Any = self.dataset.source
        while not isinstance(source, Planned):
            source = source.dataset.source
        return source

    @cached_property
    def documents(self) -> Dataset[Any]:
        """Dataset of the rows before they are grouped."""
        return evolve(self.groups.dataset, columns=self.dataset.columns)

    @cached_property
    def order(self) -> Callable[[int], NDArray[np.integer[Any]]]:
        """Function that takes an epoch and returns the indices of rows in `documents`, int[N], in the order of the output."""
        return lru_cache(maxsize=1)(self._order)

    def _order(self, epoch: int) -> NDArray[np.integer[Any]]:
        source: Any = self.dataset.source
        groups: Indices = np.arange(self.groups.exact_length())
        while not isinstance(source, Planned):
            groups, source = source.rows(groups, epoch), source.dataset.source
        return self.groups.plan.take(groups).documents

    def rows(self, indices: Indices, epoch: int) -> Indices:
        return self.order(epoch)[indices].astype(np.int64)

    def task(self, epoch: int, indices: Indices) -> Task:
        return row_task(self.documents, epoch, self.rows(indices, epoch))

    def length(self) -> int | None:
        return None

    def exact_length(self) -> int:
        return int(self.groups.plan.ends[-1])

    def __repr__(self) -> str:
        return "unbatch()"


def is_planned(dataset: Dataset[Any]) -> bool:
    """Return True for a dataset of groups planned from row lengths. If a stage other than `shuffle` follows the groups, return False."""
    source = dataset.source
    if dataset.level != "groups" or dataset.stages:
        return False
    return isinstance(source, Planned) or (isinstance(source, View) and source.permutes and is_planned(source.dataset))
