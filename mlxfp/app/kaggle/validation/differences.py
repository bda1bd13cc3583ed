"""Search for differences between training and test rows. Such differences make validation scores misleading."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mlxfp import Dataset, schema, select_columns, to_table
from mlxfp.app.kaggle.specs.cells import as_floats, folded, spell
from mlxfp.app.kaggle.specs.dates import Order, column_order, date_numbers
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.parts import one_chunk
from mlxfp.support.errors import listed

_UNSEEN = 0.1  # a difference is reported if more than 10 % of the test rows have unseen, missing or out-of-range values
_EXAMPLES = 3  # unseen values in a warning


def part_differences(spec: DatasetSpec, train: Dataset[Any], test: Dataset[Any]) -> Iterator[str]:
    """Yield a sentence per difference between the columns and values of training and test rows.

    >>> import mlxfp as fp
    >>> about = {"train": fp.kaggle.FileSpec(name="a.csv"), "target": ["y"], "metric": "rmse"}
    >>> columns = [fp.kaggle.ColumnSpec(name="zip", type="categorical")]
    >>> spec = fp.kaggle.DatasetSpec(name="x", kind="regression", columns=columns, **about)
    >>> train = fp.from_table({"zip": ["270", "271"] * 9, "y": [1.0, 2.0] * 9})
    >>> list(part_differences(spec, train, fp.from_table({"zip": ["270.0", "271"]})))
    ["'zip' has values with another spelling in the test rows: '270.0' for '270'."]
    """
    yield from _names(spec, schema(train).names, schema(test).names)
    names = [column.name for column in spec.columns if column.name in schema(test).names]
    if not names:
        return
    before, after = (one_chunk(to_table(select_columns(names)(rows))) for rows in (train, test))
    if not before.num_rows or not after.num_rows:
        return
    for column in spec.columns:
        if column.name in names:
            if after.column(column.name).null_count == after.num_rows and before.column(column.name).null_count < before.num_rows:
                yield f"{column.name!r} is empty in all {after.num_rows:,} test rows, but not in the training rows."
            elif column.kind.is_number:
                yield from _numbers(column.name, before, after)
            elif column.type == "categorical":  # other texts are not compared, because almost every test row has a new text
                yield from _categories(column.name, before, after)
            elif order := column_order(spell(before, column.name)):
                yield from _dates(column.name, spell(after, column.name), order)


def _names(spec: DatasetSpec, train: Sequence[str], test: Sequence[str]) -> Iterator[str]:
    missing = [name for name in train if name not in test and name not in {*spec.target, spec.id}]
    near = {_plain(name): name for name in test if name not in train}
    for name in missing:
        if _plain(name) in near:
            yield f"The column {name!r} is named {near[_plain(name)]!r} in the test file, and no model reads the column. Rename one."
    other = [name for name in missing if _plain(name) not in near]
    if other:
        yield f"The test file lacks columns of the training file, which no model reads: {listed(map(repr, other))}."


def _plain(text: str) -> str:
    """Return a text without differences that do not matter: lower case, no outer spaces, one Unicode form, and "1" instead of "1.0"."""
    bare = folded(text)
    try:
        return f"{float(bare):g}" if bare and not bare.isalpha() else bare
    except ValueError:
        return bare


def unseen_values(spec: DatasetSpec, train: Dataset[Any], rows: Dataset[Any]) -> Iterator[str]:
    """Yield a phrase for each column of `rows` with unseen categories, or with dates in another order than in the training rows.

    `rows` must have all columns of the spec.

    >>> import mlxfp as fp
    >>> about = {"train": fp.kaggle.FileSpec(name="a.csv"), "target": ["y"], "metric": "rmse"}
    >>> columns = [fp.kaggle.ColumnSpec(name="zip", type="categorical")]
    >>> spec = fp.kaggle.DatasetSpec(name="x", kind="regression", columns=columns, **about)
    >>> list(unseen_values(spec, fp.from_table({"zip": ["270", "271"]}), fp.from_table({"zip": ["272", "271", None, "272"]})))
    ["'zip' in 2 of 4 rows ('272')"]
    """
    types = {column.name: column.type for column in spec.columns if not column.kind.is_number}
    if not types:
        return
    before, after = (one_chunk(to_table(select_columns([*types])(part))) for part in (train, rows))
    for name, kind in types.items():
        unseen, reason = _unseen(name, before, after)[1], ""
        if kind != "categorical":
            dates = spell(before, name)
            order = column_order(dates)
            unseen = unseen[:0] if order is None else _without_dates(unseen, order)
            reason = f": the dates of the training rows look like {pc.drop_null(dates)[0].as_py()!r:.40}" if len(unseen) else ""
        if len(unseen):
            examples = listed((f"{text!r:.40}" for text in unseen.unique().to_pylist()), most=_EXAMPLES)
            yield f"{name!r} in {len(unseen):,} of {after.num_rows:,} rows ({examples}{reason})"


def _unseen(name: str, before: pa.RecordBatch, after: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    """Return the distinct values of a column in `before`, and the values of the rows of `after` that are not in `before`."""
    known, values = pc.drop_null(spell(before, name)).unique(), pc.drop_null(spell(after, name))
    return known, values.filter(pc.invert(pc.is_in(values, known)))


def _categories(name: str, before: pa.RecordBatch, after: pa.RecordBatch) -> Iterator[str]:
    known, unseen = _unseen(name, before, after)
    if not len(unseen):
        return
    spellings = {_plain(text): text for text in known.to_pylist()}
    others = [(text, spellings[_plain(text)]) for text in unseen.unique().to_pylist() if _plain(text) in spellings]
    if others:
        yield f"{name!r} has values with another spelling in the test rows: {listed(f'{text!r} for {old!r}' for text, old in others)}."
    share = len(unseen) / after.num_rows
    if share > _UNSEEN and len(others) < len(unseen.unique()):
        examples = listed(f"{text!r:.40}" for text in unseen.unique().to_pylist())
        yield f"{name!r} has values in {share:.0%} of the test rows that no training row has: {examples}."


def _dates(name: str, texts: pa.Array, order: Order) -> Iterator[str]:
    unread = _without_dates(pc.drop_null(texts), order)
    if len(unread) > _UNSEEN * len(texts):
        yield (
            f"{name!r} has texts in {len(unread) / len(texts):.0%} of the test rows that are no dates in the order of the training rows: "
            f"{unread[0].as_py()!r:.40}. Write all dates in one order."
        )


def _without_dates(texts: pa.Array, order: Order) -> pa.Array:
    """Return the texts that are no dates in this order."""
    return texts.filter(pa.array(np.isnan(date_numbers(texts, order)[:, 0])))


def _numbers(name: str, before: pa.RecordBatch, after: pa.RecordBatch) -> Iterator[str]:
    known, values = as_floats(before.column(name)), as_floats(after.column(name))
    missing = np.isnan(values)
    if not np.isnan(known).any() and missing.mean() > _UNSEEN:
        yield f"{name!r} is missing in {missing.mean():.0%} of the test rows and in no training row."
    if np.isnan(known).all() or missing.all():
        return
    low, high = np.nanmin(known), np.nanmax(known)
    outside = ((values < low) | (values > high)).mean()
    if outside > _UNSEEN:
        yield (
            f"{name!r} is outside of the training range, {low:g} to {high:g}, in {outside:.0%} of the test rows "
            f"({np.nanmin(values):g} to {np.nanmax(values):g})."
        )
