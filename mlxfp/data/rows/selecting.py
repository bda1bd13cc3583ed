"""Stages that select examples by index, or split a dataset into parts, for example for training, validation and test."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import attrs
import numpy as np
import pyarrow as pa
from attrs import field, frozen

from mlxfp.core.chunks import Example, Indices, RecordBatch, Schema, source_rows, visible
from mlxfp.core.datasets import Dataset, check_indexable
from mlxfp.core.describing import schema
from mlxfp.core.execution import read_all, row_count
from mlxfp.core.identity import fingerprint
from mlxfp.core.sources import Position, check_ends
from mlxfp.core.stages import Stage, State, check_level
from mlxfp.data.row_views import ByPosition, View
from mlxfp.data.rows.columns import select_columns
from mlxfp.data.sources.in_memory import FromTable
from mlxfp.support.checks import check_columns, check_integer, check_text, check_types, explain_call, not_none
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, PipelineError, SchemaError
from mlxfp.support.randomness import Keys, fold_in, fold_in_rows, generator

if TYPE_CHECKING:  # Type variables with defaults need Python 3.13 or the package typing_extensions.
    import typing_extensions

    Valid_co = typing_extensions.TypeVar("Valid_co", covariant=True, default=Dataset[Any] | None)
    Test_co = typing_extensions.TypeVar("Test_co", covariant=True, default=Dataset[Any] | None)
else:
    Valid_co, Test_co = TypeVar("Valid_co", covariant=True), TypeVar("Test_co", covariant=True)


@explain_call
def select(indices: Sequence[int] | Indices, *, redraw: bool = False) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Select examples by index, in the given order. An index may occur twice. Needs random access.

    After `shuffle`, each epoch selects different examples. Reading a second epoch then gives a warning. `redraw=True` turns the warning
    off. Raises `ArgumentError` for a negative index, and at the first read for an index beyond the last row.

    >>> import mlxfp as fp
    >>> list(fp.pipe(fp.from_examples([{"x": i} for i in range(5)]), fp.select([3, 0, 3])))
    [{'x': 3}, {'x': 0}, {'x': 3}]
    """
    numbers = np.asarray(indices)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        remedies = {"b": "Write select(numpy.flatnonzero(mask)).", "U": "To keep columns, write select_columns([...])."}
        remedy = remedies.get(numbers.dtype.kind, "Pass a list of row numbers.")
        raise ArgumentTypeError(
            f"indices must be a flat sequence of integers, got {numbers.dtype}{list(numbers.shape)}: {numbers!r:.60}. {remedy}"
        )
    if not numbers.size:
        raise ArgumentError("select needs at least one index, got none. To keep the rows that meet a condition, use filter.")
    if numbers.min() < 0:
        raise ArgumentError(f"indices must be at least 0, got {numbers.min()}. The n-th row from the end is length(dataset) - n.")
    return _Selecting(numbers.astype(np.int64), redraw)


@explain_call
def split(
    fractions: Sequence[float], *, seed: int, stratify: str | None = None, group: str | None = None
) -> Callable[[Dataset[Example]], tuple[Dataset[Example], ...]]:
    """Split a dataset at random into disjoint parts in proportion to `fractions`. Each part keeps the order of the rows.

    A row is in the same part in every epoch. If `split` follows a `shuffle`, the original rows are split, and each part is then shuffled
    separately.

    With random access, the sizes of the parts are exact: rows times fraction, rounded so that the total is correct. On a stream, a hash of
    the row number selects the part. Part sizes are then approximate, and every part reads the whole stream.

    `stratify` names a column: the rows with each value are split in the same proportions (needs random access). `group` names a column:
    rows with equal values stay in the same part. Raises `SchemaError` for a missing column or a column of lists: immediately for a table
    in memory, and at the first read for other data.

    >>> import mlxfp as fp
    >>> train, valid = fp.pipe(fp.from_examples([{"x": i} for i in range(10)]), fp.split([0.8, 0.2], seed=0))
    >>> len(list(train)), sorted(row["x"] for part in (train, valid) for row in part) == list(range(10))
    (8, True)
    """
    check_integer(seed=seed)
    check_text(**not_none(stratify=stratify, group=group))
    if isinstance(fractions, int | float):
        raise ArgumentTypeError(f"fractions must be a list, got {fractions}. Write fractions=[{fractions}, {round(1 - fractions, 6)}].")
    if isinstance(fractions, Mapping):
        raise ArgumentTypeError(
            f"fractions must be a list, got {dict(fractions)!r:.80}. Write {', '.join(map(str, fractions)):.80} = "
            f"fp.split({[*fractions.values()]!r:.60}, seed=0)(rows)."
        )
    check_types((Sequence, np.ndarray), fractions=fractions)
    if not (len(fractions) > 1 and min(fractions) > 0 and abs(sum(fractions) - 1) <= 1e-6):
        counts = len(fractions) > 1 and min(fractions) >= 1
        remedy = f" Write {[float(fraction / sum(fractions)) for fraction in fractions]}." if counts else ""
        raise ArgumentError(f"fractions must be at least two positive numbers that add up to 1, got {list(fractions)}.{remedy}")
    if stratify is not None and group is not None:
        raise ArgumentError("split takes stratify or group, got both. For stratified groups use kaggle.folds.")
    return _Splitting(tuple(map(float, fractions)), seed, stratify, group)


@frozen
class Splits(Generic[Valid_co, Test_co]):
    """Datasets for training, validation and test. Validation and test may be None.

    Create a `Splits` directly if the data are already split: `Splits(from_hf(parts["train"]), valid=from_hf(parts["validation"]))`.

    >>> import mlxfp as fp
    >>> fp.Splits(fp.from_examples([{"x": 1}]), valid=fp.from_examples([{"x": 2}])).test is None
    True

    See also: `train_valid_test`, which cuts them from one dataset.
    """

    train: Dataset[Any]
    valid: Valid_co = None  # type: ignore[assignment]  # the default of a type variable
    test: Test_co = None  # type: ignore[assignment]

    def __attrs_post_init__(self) -> None:
        check_types(Dataset, train=self.train)
        check_types((Dataset, type(None)), valid=self.valid, test=self.test)


@overload
def train_valid_test(
    data: Dataset[Any], *, seed: int, valid: float = ..., test: None = None, stratify: str | None = ...
) -> Splits[Dataset[Any], None]: ...
@overload
def train_valid_test(
    data: Dataset[Any], *, seed: int, valid: float = ..., test: float, stratify: str | None = ...
) -> Splits[Dataset[Any], Dataset[Any]]: ...
@overload
def train_valid_test(
    data: Dataset[Any], *, seed: int, valid: float = ..., test: float | None, stratify: str | None = ...
) -> Splits[Dataset[Any], Dataset[Any] | None]: ...
@explain_call
def train_valid_test(
    data: Dataset[Any], *, seed: int, valid: float = 0.1, test: float | None = None, stratify: str | None = None
) -> Splits[Any, Any]:
    """Split a dataset at random into parts for training, validation and, if `test` is given, test.

    `valid` and `test` are fractions of the examples. The other examples are for training. `stratify` names a column: its values then have
    the same proportions in all parts (needs random access). The parts are disjoint, cover the data, and stay the same for the same seed.

    `data` is a dataset, made by `read_csv` and other readers for files, `from_table` for arrays, `from_hf` for Hugging Face datasets, or
    `from_torch` for torch datasets. Raises `SchemaError` if the column `stratify` is missing.

    >>> import mlxfp as fp
    >>> parts = fp.train_valid_test(fp.from_table({"x": range(20), "label": [0, 1] * 10}), seed=0, stratify="label")
    >>> fp.length(parts.train), sorted(row["label"] for row in parts.valid)
    (18, [0, 1])

    See also: `split`, which makes any number of parts.
    """
    if not isinstance(data, Dataset):
        raise ArgumentTypeError(
            f"train_valid_test takes a dataset, got {type(data).__name__}. Create one: read_csv(path) and the other readers for files, "
            "from_table({...}) for arrays, from_hf for Hugging Face sets, from_torch for torch sets, from_examples for a list of dicts."
        )
    check_types((int, float), valid=valid)
    check_types((int, float, type(None)), test=test)
    check_types((str, type(None)), stratify=stratify)
    fractions = [1 - valid - (test or 0), valid] + ([] if test is None else [test])
    if min(fractions) <= 0:
        shares = {name: share / 100 if share >= 1 else share for name, share in not_none(valid=valid, test=test).items()}
        written = ", ".join(f"{name}={share:g}" for name, share in shares.items())
        remedy = f" Write percentages as fractions: {written}." if max(valid, test or 0) >= 1 and sum(shares.values()) < 1 else ""
        raise ArgumentError(
            f"Every part needs a share above 0, got valid={valid} and test={test}, which leaves {fractions[0]:g} to train on.{remedy}"
        )
    if stratify is not None:
        check_columns([stratify], schema(data).names, "train_valid_test")
        check_indexable(data, f"train_valid_test by the values in {stratify!r}")
    return Splits(*split(fractions, seed=seed, stratify=stratify)(data))


@frozen(repr=False)
class _Select(ByPosition):
    indices: Indices = field(eq=fingerprint)

    def rows(self, indices: Indices, epoch: int) -> Indices:
        selected: Indices = self.indices[indices]
        count = row_count(self.dataset)
        if selected.size and selected.max() >= count:
            raise ArgumentError(f"{self!r} asks for row {selected.max()} of a dataset with {count} rows, in {self.dataset!r}.")
        return selected

    def size(self, count: int) -> int:
        return len(self.indices)

    def in_order(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        raise PipelineError(f"{self!r} needs random access.")  # Unreachable: `check_indexable` raises an error earlier.

    def __repr__(self) -> str:
        return f"select({len(self.indices):,} indices)"


@frozen(repr=False)
class _Selecting:
    indices: Indices = field(eq=fingerprint)
    redraw: bool

    def __call__(self, dataset: Dataset[Example]) -> Dataset[Example]:
        check_level(dataset, self, frozenset({"examples"}))
        check_indexable(dataset, repr(self))
        return Dataset(_Select(dataset, self.indices, redraw=self.redraw))

    def __repr__(self) -> str:
        return f"select({len(self.indices):,} indices)"


@frozen(repr=False)
class _Splitting:
    fractions: tuple[float, ...]
    seed: int
    stratify: str | None
    group: str | None

    def __call__(self, dataset: Dataset[Example]) -> tuple[Dataset[Example], ...]:
        check_level(dataset, self, frozenset({"examples"}))
        source = dataset.source
        if isinstance(source, View) and source.permutes and dataset.indexable:
            # The order after a shuffle differs in each epoch. The split is therefore moved before the shuffle.
            inner = source.dataset
            parts = self(attrs.evolve(inner, stages=(*inner.stages, *dataset.stages)))
            return tuple(attrs.evolve(dataset, source=attrs.evolve(source, dataset=part), stages=()) for part in parts)
        if self.stratify is not None:
            check_ends(dataset, repr(self))
            check_indexable(dataset, repr(self))
            if dataset.reorders and dataset.indexable:
                raise PipelineError(
                    f"{self!r} needs a fixed row order, but the rows have another order in each epoch, in {dataset!r}. "
                    "Put shuffle after split."
                )
        sources = [_Split(dataset, part, **attrs.asdict(self)) for part in range(len(self.fractions))]
        if isinstance(dataset.source, FromTable) and all(type(stage).infer is Stage.infer for stage in dataset.stages):
            sources[0].schema()  # The schema is known without reading data. Raises an error if the column is missing or unsuitable.
        return tuple(map(Dataset, sources))

    def __repr__(self) -> str:
        by = next((f", {name}={value!r}" for name, value in (("stratify", self.stratify), ("group", self.group)) if value), "")
        return f"split({list(self.fractions)}, seed={self.seed}{by})"


@frozen(repr=False)
class _Split(View):
    part: int
    fractions: tuple[float, ...]
    seed: int
    stratify: str | None = None
    group: str | None = None

    @property
    def indexable(self) -> bool:
        # Streams and reordered datasets have no fixed positions: `streamed` splits their rows.
        return self.dataset.indexable and not self.dataset.reorders

    def schema(self) -> Schema:
        schema = super().schema()
        by = [name for name in (self.stratify, self.group) if name is not None]
        check_columns(by, schema.names, "split")
        for name in by:
            if pa.types.is_nested(kind := schema.field(name).type):
                raise SchemaError(f"split needs a column of numbers or texts, got {kind} for {name!r}. Create such a column with map.")
        return schema

    @cached_property
    def members(self) -> Indices:
        """Sorted row indices of this part: int64[N]."""
        values = None
        if self.stratify or self.group:
            self.schema()  # raises an error that names `split` if the column is missing
            column = select_columns([self.stratify or self.group or ""])(self.dataset)
            values = np.concatenate([_codes(chunk) for chunk in read_all(column, reader="split")] or [np.empty(0, np.uint64)])
        return np.flatnonzero(self._parts(values) == self.part)

    def rows(self, indices: Indices, epoch: int) -> Indices:
        selected: Indices = self.members[indices]
        return selected

    def size(self, count: int) -> int | None:
        return len(self.members) if self.indexable else None

    def length(self) -> int | None:
        return super().length() if self.stratify is None and self.group is None else None

    def streamed(self) -> Stage:
        if self.stratify is not None:
            raise PipelineError(f"{self!r} needs random access.")  # Unreachable: `check_indexable` raises an error earlier.
        return _HashedPart(self.part, self.fractions, self.seed, self.group)

    def _parts(self, values: Keys | None) -> Indices:
        """Return for each row the index of its split, such as 0 for training rows and 1 for validation rows: int64[N]."""
        if self.group is not None:
            assert values is not None  # `members` always passes `values` if `group` is set.
            return _cut(values, self.fractions, self.seed)
        count = row_count(self.dataset)
        order = generator(fold_in(0, "split", self.seed)).permutation(count)
        kinds = np.zeros(count, np.uint64) if values is None else values
        order = order[np.argsort(kinds[order], kind="stable")]  # Sort rows by value, in random order within each value.
        sizes = _sizes_by_value(np.unique(kinds, return_counts=True)[1], self.fractions)
        parts = np.empty(count, np.int64)
        parts[order] = np.repeat(np.tile(np.arange(len(self.fractions)), len(sizes)), sizes.ravel())
        return parts


@frozen(repr=False)
class _HashedPart(Stage):
    part: int
    fractions: tuple[float, ...]
    seed: int
    group: str | None

    def step(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[RecordBatch]]:
        values = _codes(chunk.select([self.group])) if self.group else source_rows(chunk).astype(np.uint64)
        return state, (chunk.filter(pa.array(_cut(values, self.fractions, self.seed) == self.part)),)


def _sizes(count: int, fractions: tuple[float, ...]) -> Indices:
    """Return part sizes as integers that add up to `count`. The sizes with the largest remainders are rounded up."""
    exact = np.asarray(fractions) * count
    sizes = np.floor(exact + 1e-9).astype(np.int64)
    sizes[np.argsort(sizes - exact, kind="stable")[: count - sizes.sum()]] += 1
    return sizes


def _sizes_by_value(counts: Indices, fractions: tuple[float, ...]) -> Indices:
    """Divide the rows among the splits, separately for each value. Return the numbers of rows, int64[values, splits].

    `counts` holds the number of rows with each value. The total size of each split is exact. Rows left over by rounding are spread evenly
    over the splits.
    """
    sizes = np.floor(np.outer(counts, fractions) + 1e-9).astype(np.int64)
    missing = _sizes(int(counts.sum()), fractions) - sizes.sum(axis=0)  # rows that each part lacks, because sizes are rounded down
    turns = np.concatenate([(np.arange(number) + 0.5) / number for number in missing])
    parts = np.repeat(np.arange(len(fractions)), missing)[np.argsort(turns, kind="stable")]
    np.add.at(sizes, (np.repeat(np.arange(len(counts)), counts - sizes.sum(axis=1)), parts), 1)
    return sizes


def _cut(values: Keys, fractions: tuple[float, ...], seed: int) -> Indices:
    """Return for each value the index of its split, int64[N]. A hash of the value selects the split."""
    uniform = fold_in_rows(fold_in(0, "split", seed), values) / 2.0**64
    return np.searchsorted(np.cumsum(fractions)[:-1], uniform, side="right")


def _codes(chunk: RecordBatch) -> Keys:
    """Return a hash of each row's value in the first column of `chunk`. Equal values have equal hashes in all chunks and processes."""
    column = visible(chunk).column(0).dictionary_encode()
    values = (0.0 if value == 0.0 and isinstance(value, float) else value for value in column.dictionary.to_pylist())  # -0.0 equals 0.0
    known = np.array([fold_in(0, fingerprint(value)) for value in values] + [0], np.uint64)
    indices = column.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)
    codes: Keys = known[indices]
    return codes
