"""Sources that join several datasets. `Concat` reads one dataset after the other."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import evolve, frozen
from numpy.typing import NDArray

from mlxfp.core.chunks import Indices, RecordBatch, Schema, concat_chunks, number_joined
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import length
from mlxfp.core.execution import row_count, row_task, run, start
from mlxfp.core.nodes import check_dataset, known_length, leaves
from mlxfp.core.planning import head
from mlxfp.core.sources import Position, Source, SourceTraits, Task
from mlxfp.support.errors import ArgumentError, PipelineError, SchemaError
from mlxfp.support.terminal import columns_text


def joinable(datasets: Any, name: str) -> tuple[Dataset[Any], ...]:
    """Check datasets that are to be joined. Return the datasets as a tuple.

    Error messages contain `name`, the name of the joining function.
    """
    if not isinstance(datasets, Sequence) or not datasets:
        raise ArgumentError(f"{name} takes a list of at least one dataset, got {datasets!r:.60}.")
    for dataset in datasets:
        check_dataset(dataset, name)
    levels = [dataset.level for dataset in datasets]
    if len(set(levels)) > 1:
        raise PipelineError(f"{name} cannot join datasets of {' and of '.join(sorted(set(levels)))}. Put batch and collate after {name}.")
    return tuple(datasets)


@frozen(repr=False)
class Joined(Source):
    """Source that reads several datasets with the same columns. The hidden column `__row__` tells from which dataset a row comes."""

    datasets: tuple[Dataset[Any], ...]

    @property
    def traits(self) -> SourceTraits:
        return evolve(super().traits, level=self.datasets[0].level, head=self.head, children_at=self.children_at)

    @abstractmethod
    def children_at(self, position: Position) -> tuple[tuple[Dataset[Any], Cursor], ...]:
        """Return the datasets that have been started, each with its cursor."""

    def schema(self) -> Schema:
        schemas = [dataset.plan.schema for dataset in self.datasets]
        for index, schema in enumerate(schemas):
            if not schema.equals(schemas[0]):
                raise SchemaError(
                    f"Joined datasets need the same columns; dataset 0 has {columns_text(schemas[0])}, dataset {index} has "
                    f"{columns_text(schema)}. Use select_columns, rename_columns or map before joining the datasets."
                )
        return schemas[0]

    def version(self) -> Any:
        return tuple(dataset.source.version() for dataset in self.datasets)

    def head(self) -> Iterator[RecordBatch]:
        for index, dataset in enumerate(self.datasets):
            yield from (self.marked(chunk, index) for chunk in head(dataset))

    def marked(self, chunk: Any, index: int) -> Any:
        """Mark the rows of a chunk as rows of dataset `index`, in the hidden columns. Batches have no hidden columns and stay unchanged."""
        return chunk if isinstance(chunk, dict) else number_joined(chunk, index, self.first_leaves[index])

    @cached_property
    def first_leaves(self) -> tuple[int, ...]:
        """Index of the first data source of each dataset, among all data sources. The last entry is the number of all data sources."""
        return tuple(accumulate((sum(1 for _ in leaves(dataset)) for dataset in self.datasets), initial=0))


@frozen(repr=False)
class Concat(Joined):
    """Source that reads datasets end to end."""

    @property
    def traits(self) -> SourceTraits:
        return evolve(super().traits, costly=self.costly, task=self.task, exact_length=self.exact_length, before=self.before)

    @property
    def indexable(self) -> bool:
        return self.datasets[0].level == "examples" and all(dataset.indexable for dataset in self.datasets)

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        first, cursor = position or (0, None)
        for index in range(first, len(self.datasets)):
            with closing(run(self.datasets[index], start(epoch, cursor))) as chunks:
                for chunk, cursor in chunks:
                    yield self.marked(chunk, index), (index, cursor)
            cursor = None

    def costly(self) -> bool:
        return any(dataset.plan.costly for dataset in self.datasets)

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        return self.task(epoch, indices).read()

    def task(self, epoch: int, indices: NDArray[np.int64]) -> Task:
        ends = np.cumsum([row_count(dataset) for dataset in self.datasets])
        owners = np.searchsorted(ends, indices, side="right")
        order = np.argsort(owners, kind="stable")
        needed = np.unique(owners).tolist() or [0]
        starts = np.concatenate([[0], ends])
        parts = tuple(row_task(self.datasets[p], epoch, indices[order][owners[order] == p] - starts[p]) for p in needed)
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
        return _Gathered(parts, tuple(needed), tuple(self.first_leaves[index] for index in needed), inverse)

    def children_at(self, position: Position) -> tuple[tuple[Dataset[Any], Cursor], ...]:
        return () if position is None or position[1] is None else ((self.datasets[position[0]], position[1]),)

    def before(self, chunk: RecordBatch, after: Position) -> Position:
        index, cursor = after
        return index, cursor.back(chunk.num_rows)

    def length(self) -> int | None:
        return _sum(known_length(dataset) for dataset in self.datasets)

    def exact_length(self) -> int | None:
        return _sum(length(dataset) for dataset in self.datasets)


@frozen(eq=False)
class _Gathered(Task):
    """Task that reads rows from several datasets. The field `order` sets the order of the rows."""

    parts: tuple[Task, ...]
    owners: tuple[int, ...]  # for each task in `parts`: index of the dataset that the task reads
    leaves: tuple[int, ...]  # for each task in `parts`: index of the first data source of its dataset, among all data sources
    order: Indices  # final order of the concatenated rows

    @property
    def rows(self) -> int:
        return len(self.order)

    def read(self) -> RecordBatch:
        parts = zip(self.parts, self.owners, self.leaves, strict=True)
        return concat_chunks([number_joined(part.read(), index, leaf) for part, index, leaf in parts]).take(pa.array(self.order))

    def sent_to(self, workers: str) -> Task:
        return _Gathered(tuple(part.sent_to(workers) for part in self.parts), self.owners, self.leaves, self.order)


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)
