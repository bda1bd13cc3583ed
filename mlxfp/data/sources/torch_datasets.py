"""Source for PyTorch datasets: objects with `__getitem__` and `__len__`, or with `__iter__`. PyTorch need not be installed."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import FunctionType
from typing import Any

import attrs
import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.array_values import without_arrays
from mlxfp.core.chunks import Example, RecordBatch, Schema, from_rows
from mlxfp.core.datasets import Dataset
from mlxfp.core.identity import comparable
from mlxfp.core.sources import IndexTask, Position, Source, SourceTraits, Task, Tasks, read_tasks
from mlxfp.data.sources.columns import as_columns
from mlxfp.data.sources.in_memory import FromIterable
from mlxfp.data.sources.row_chunks import ROWS_PULLED, infer_schema, tasks_in_order
from mlxfp.support.checks import explain_call
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError


@explain_call
def from_torch(dataset: Any, *, columns: Sequence[str] | None = None, schema: Schema | None = None) -> Dataset[Example]:
    """Make a dataset from a PyTorch dataset.

    A map-style dataset (`__getitem__` and `__len__`) has random access. An iterable-style dataset (`__iter__`) is iterated from the
    start in every epoch. After a resume, the items before the cursor are read again and dropped.

    Items are mappings, or tuples whose parts take the names in `columns`. A single value counts as a tuple of one part. Tensors (on any
    device), NumPy arrays and Pillow images become numbers, lists (one axis) or fixed-shape tensors (several axes). Without `schema`,
    types are inferred from the first 128 items, which are therefore read twice. Every read of an item must give the same value. Use
    `map(seed=)` for randomness.

    Raises `ArgumentTypeError` for other objects and for iterators, and `ArgumentError` for empty or repeated `columns`. Reading raises
    `ArgumentError` for tuples without `columns`, and `DataError` with the item for a tuple with a wrong number of parts.

    >>> class Squares:
    ...     def __len__(self): return 3
    ...     def __getitem__(self, index): return np.array([index, index ** 2]), index % 2
    >>> rows = from_torch(Squares(), columns=["features", "label"])
    >>> rows[2]
    {'features': [2, 4], 'label': 0}

    See also: `from_hf`, `from_iterable`.
    """
    items = _Items(dataset, as_columns(columns))
    # An `IterableDataset` of PyTorch has the method `__getitem__` but no random access, so the class name is tested.
    streamed = any(kind.__name__ == "IterableDataset" for kind in type(dataset).__mro__)
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__") and not streamed:
        return Dataset(_FromTorch(items, schema))
    if not hasattr(dataset, "__iter__") or isinstance(dataset, Iterator):
        raise ArgumentTypeError(
            f"from_torch needs __getitem__ and __len__, or an __iter__ that starts over each time, got {type(dataset).__name__}: "
            f"{dataset!r:.60}. For a generator, pass the generator function to from_iterable."
        )
    return Dataset(_FromTorchStream(items, schema))


@frozen
class _Items:
    """Items of a PyTorch dataset, converted to examples."""

    dataset: Any
    columns: tuple[str, ...] | None

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Example:
        return self._example(self.dataset[index], index)

    def __call__(self) -> Iterator[Example]:
        return (self._example(item, index) for index, item in enumerate(self.dataset))

    def __fingerprint__(self) -> Any:
        return self.columns, _identity(self.dataset)

    def _example(self, item: Any, index: int) -> Example:
        if isinstance(item, Mapping):
            return {name: without_arrays(value) for name, value in item.items()}
        parts = item if isinstance(item, tuple | list) else (item,)
        if self.columns is None:
            raise ArgumentError(
                f"from_torch needs a name for each part of an item, got {type(item).__name__} of {len(parts)} for item {index} of "
                f"{type(self.dataset).__name__}. "
                f"Name the parts with columns={[f'column_{number}' for number in range(len(parts))]!r:.80}."
            )
        if len(parts) != len(self.columns):
            raise DataError(
                f"Item {index} of {type(self.dataset).__name__} has {len(parts)} parts, but there are {len(self.columns)} columns "
                f"({', '.join(self.columns)}). Name every part in columns=, or return fewer parts from the dataset."
            )
        return {name: without_arrays(part) for name, part in zip(self.columns, parts, strict=True)}


def _identity(value: Any) -> Any:
    """Return the values that identify a dataset in a fingerprint: its attributes, and its functions `__getitem__` and `__iter__`.

    A dataset in an attribute, such as the dataset of a `Subset`, is identified in the same way.
    """
    if isinstance(value, Mapping):
        return {name: _identity(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [_identity(part) for part in value]
    kind, plain = type(value), without_arrays(value)
    if plain is not value or hasattr(kind, "__fingerprint__") or not hasattr(value, "__dict__"):
        return plain
    code = [vars(base)[name] for base in kind.__mro__ for name in ("__getitem__", "__iter__") if name in vars(base)]
    read = [part for part in code if isinstance(part, FunctionType)]
    return (kind, read, _identity(vars(value))) if read else plain


@frozen(repr=False)
class FromItems(Source):
    """Source for an object with `__getitem__` and `__len__` whose items are mappings.

    A resume position is the number of items already read.
    """

    items: Any = field(eq=comparable)
    declared: Schema | None = None
    indexable = True

    @property
    def traits(self) -> SourceTraits:
        """Properties that the planner needs. Threads must not read rows at the same time, because the dataset may not be thread-safe."""
        return SourceTraits(costly=lambda: True, task=self.task, take_workers=frozenset({"processes"}))

    @cached_property
    def inferred(self) -> Schema:
        """Schema declared by the user, or inferred from the first items. The schema is cached, because each `take` needs the schema."""
        return infer_schema(self.items[index] for index in range(self.length())) if self.declared is None else self.declared

    def schema(self) -> Schema:
        return self.inferred

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        yield from read_tasks(self.tasks(epoch, position))

    def tasks(self, epoch: int, position: Position) -> Tasks:
        return tasks_in_order(self, epoch, position or 0, ROWS_PULLED)

    def task(self, epoch: int, indices: NDArray[np.int64]) -> Task:
        """Return a task that reads some items. The task holds the schema, so that worker processes need not infer the schema again."""
        return IndexTask(self._declared, epoch, indices)

    @cached_property
    def _declared(self) -> "FromItems":
        return self if self.declared is not None else attrs.evolve(self, declared=self.inferred)

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        return from_rows([self.items[index] for index in indices.tolist()], self.schema(), indices)

    def length(self) -> int:
        return len(self.items)


class _FromTorch(FromItems):
    __slots__ = ()

    def __repr__(self) -> str:
        return f"from_torch({type(self.items.dataset).__name__} of {self.length():,})"


class _FromTorchStream(FromIterable):
    __slots__ = ()

    def __repr__(self) -> str:
        items: Any = self.examples
        return f"from_torch({type(items.dataset).__name__})"
