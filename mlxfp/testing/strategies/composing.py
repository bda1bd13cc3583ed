"""Hypothesis strategies for sources, for stages that fit a given dataset, and for whole pipelines."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from zlib import crc32

import pyarrow as pa
from hypothesis import strategies as st

from mlxfp.core.chunks import Example, RecordBatch, Schema, set_column, set_field, to_rows
from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import schema
from mlxfp.core.nodes import flat_parts
from mlxfp.data.lengths.batching import batch, unbatch
from mlxfp.data.rows.columns import drop_columns, rename_columns, select_columns
from mlxfp.data.rows.map_filter import filter, flat_map, map, map_chunks, skip, take
from mlxfp.data.rows.repeating import repeat
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.running.prefetching import prefetch
from mlxfp.data.sources.in_memory import from_examples, from_iterable, from_table
from mlxfp.testing.probing import from_chunks
from mlxfp.testing.strategies.tabular import examples, rechunkings, schemas, tables

Transform = Callable[[Dataset[Any]], Dataset[Any]]
_FEW = st.integers(1, 3)
_SEEDS = st.integers(0, 3)
_DESCRIBED = pa.schema({"text": pa.string(), "number": pa.int64(), "tokens": pa.list_(pa.int64())})


@st.composite
def sources(draw: st.DrawFn, *, max_rows: int = 6) -> Dataset[Example]:
    """Return a strategy for datasets in memory without stages. A dataset may be empty, have many chunks, or lack random access.

    >>> from hypothesis import find
    >>> find(sources(), lambda dataset: dataset.indexable)
    pipe(from_table(0 rows))
    """
    kind = draw(st.sampled_from([from_table, from_chunks, from_examples, from_iterable]))
    least = draw(st.sampled_from([0, max_rows // 2, max_rows]))
    kinds = draw(schemas(min_columns=1, max_columns=2))  # at least one column, because pickled tables without columns lose their rows
    table = draw(tables(kinds, min_rows=least, max_rows=max_rows))
    if kind is from_table:
        return from_table(table)
    if kind is from_chunks:
        return from_chunks(draw(rechunkings(table)))
    rows = draw(examples(kinds, min_rows=least, max_rows=max_rows))
    return from_examples(rows, schema=kinds) if kind is from_examples else from_iterable(rows, schema=kinds)


@st.composite
def stages(draw: st.DrawFn, dataset: Dataset[Any], *, longer: bool = True) -> Transform:
    """Return a strategy for stages that accept `dataset`, with random parameters. `longer=False` excludes stages that add rows.

    >>> from hypothesis import find
    >>> find(stages(from_examples([{"x": 1}])), lambda stage: "batch" in repr(stage))
    batch(size=1)
    """
    names = schema(dataset).names
    choices = [_parts(), st.builds(prefetch, _FEW), _rows(schema(dataset))]
    if names:
        choices += [_columns(names)]
    if longer:
        choices += [st.builds(repeat, _FEW)]
    if dataset.level == "groups":
        choices += [st.just(unbatch())]
    else:
        shuffles = st.builds(shuffle, seed=_SEEDS) | st.builds(shuffle, seed=_SEEDS, buffer=st.integers(1, 5))
        choices += [
            shuffles,
            _SEEDS.map(lambda salt: filter(partial(_keep, salt))),
            st.builds(batch, st.integers(1, 4), drop_last=st.booleans()),
        ]
        if longer:
            choices += [_SEEDS.map(lambda salt: flat_map(partial(_copies, salt), schema=_DESCRIBED))]
    chosen: Transform = draw(draw(st.sampled_from(choices)))
    return chosen


def _parts() -> st.SearchStrategy[Any]:
    return st.builds(take, st.integers(2, 9), redraw=st.just(value=True)) | st.builds(skip, st.integers(0, 3), redraw=st.just(value=True))


def _rows(kinds: Schema) -> st.SearchStrategy[Any]:
    """Return a hypothesis strategy for `map` and `map_chunks` stages with a declared schema."""
    maps = _SEEDS.map(lambda salt: map(partial(_describe, salt), schema=_DESCRIBED))
    names = st.sampled_from(["a", *kinds.names])
    return maps | names.map(lambda name: map_chunks(partial(_measure, name), schema=set_field(kinds, name, pa.int64())))


def _columns(names: list[str]) -> st.SearchStrategy[Any]:
    some = st.lists(st.sampled_from(names), min_size=1, unique=True)
    fresh = st.lists(st.text(max_size=2), min_size=len(names), max_size=len(names), unique=True)
    renamed = fresh.map(lambda new: dict(zip(names, new, strict=True)))
    return st.builds(select_columns, some) | st.builds(drop_columns, some) | st.builds(rename_columns, renamed)


@st.composite
def pipelines(draw: st.DrawFn, *, max_rows: int = 6, max_stages: int = 5) -> Dataset[Any]:
    """Return a strategy for whole valid pipelines. Stages occur in any order: filters, shuffles, `batch` and `unbatch`, nested repeats.

    >>> import mlxfp as fp
    >>> from hypothesis import given, settings
    >>> @settings(max_examples=5)
    ... @given(fp.testing.strategies.pipelines())
    ... def every_cursor_is_exact(dataset):
    ...     fp.testing.laws.assert_resumable(dataset)
    >>> every_cursor_is_exact()
    """
    dataset: Dataset[Any] = draw(sources(max_rows=max_rows))
    for _ in range(draw(st.sampled_from(range(max_stages + 1)))):
        dataset = draw(stages(dataset, longer=_lengthened(dataset) < 2))(dataset)  # at most two stages add rows, so that tests are fast
    return dataset


def _lengthened(dataset: Dataset[Any]) -> int:
    return sum(repr(part).startswith(("repeat(", "flat_map(")) for part in flat_parts(dataset))


# The functions below are arguments of stages such as `map`, and accept rows of any schema.


def _number(salt: int, row: Example) -> int:
    return crc32(f"{salt}{sorted(row.items(), key=str)!r}".encode(errors="surrogatepass"))


def _describe(salt: int, row: Example) -> Example:
    number = _number(salt, row)
    return {"text": f"{number:x}", "number": number, "tokens": [number % 7] * (number % 3)}


def _keep(salt: int, row: Example) -> bool:
    return _number(salt, row) % 3 > 0


def _copies(salt: int, row: Example) -> Iterator[Example]:
    return (_describe(salt, {**row, "copy": index}) for index in range(_number(salt, row) % 3))


def _measure(column: str, chunk: RecordBatch) -> RecordBatch:
    """Set a column to the length of each row's repr."""
    return set_column(chunk, column, pa.array([len(repr(row)) for row in to_rows(chunk)], pa.int64()))
