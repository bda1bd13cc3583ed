"""Specs, and rows that fit them, as hypothesis draws them."""

from typing import Any, Literal

import pyarrow as pa
from hypothesis import strategies as st

from mlxfp.kaggle.specs.specs import ColumnSpec, ColumnType, DatasetSpec, FileSpec, SubmissionSpec

WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6) | st.sampled_from(
    ["a: b", "a; b", "\\", "\\;", ":", "; ", "no", "1e-5", "012", "null", " x ", "{x}", "Mr. X", "é", "\n", "12:30", "2020-01-01", "<<"]
)
COLUMN_NAMES = WORDS.filter(lambda name: "\0" not in name)  # Arrow ends names there
NUMBERS = st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, 22.0, 7.25, -0.001, 1e16, 1e300, 5e-324, float("inf"), float("-inf")])

_KINDS: dict[str, tuple[int, int]] = {"binary": (2, 2), "multiclass": (2, 4), "multilabel": (2, 2), "ordinal": (2, 4)}


@st.composite
def column_specs(draw: st.DrawFn, name: str, title: str) -> ColumnSpec:
    kind: ColumnType = draw(st.sampled_from(["text", "categorical", "numerical"]))
    names = draw(st.lists(WORDS, max_size=3, unique=True)) if kind == "categorical" else []
    codes = draw(st.lists(WORDS, min_size=len(names), max_size=len(names), unique=True))
    absent = [str(draw(st.integers(-1, 1)))] if kind == "numerical" else draw(st.lists(WORDS, max_size=1))
    return ColumnSpec(
        name=name, type=kind, title=title, values=dict(zip(codes, names, strict=True)), absent=absent if draw(st.booleans()) else ()
    )


@st.composite
def dataset_specs(draw: st.DrawFn) -> DatasetSpec:
    kind = draw(st.sampled_from(["binary", "multiclass", "multilabel", "regression", "ordinal", "ranking", "time_series"]))
    names = draw(st.lists(COLUMN_NAMES, min_size=3, max_size=6, unique=True))
    titles = draw(st.lists(WORDS, min_size=len(names), max_size=len(names), unique=True))
    columns = [draw(column_specs(name, title)) for name, title in zip(names[2:], titles[2:], strict=True)]
    least, most = _KINDS.get(kind, (0, 0))
    return DatasetSpec(
        name=draw(WORDS),
        kind=kind,
        train=FileSpec(name=draw(WORDS), sha256=draw(st.none() | WORDS), rows=draw(st.none() | st.integers(0, 10**12))),
        test=draw(st.none() | st.builds(FileSpec, name=WORDS)),
        sample=draw(st.none() | st.builds(FileSpec, name=WORDS)),
        id=names[0] if draw(st.booleans()) else None,
        target=[names[1]],
        classes=draw(st.lists(WORDS, min_size=least, max_size=most, unique=True)),
        group=draw(WORDS) if kind == "ranking" else draw(st.none() | WORDS),
        time=columns[0].name if kind == "time_series" else draw(st.none() | WORDS),
        columns=columns,
        metric=draw(WORDS),
        submission=draw(st.none() | st.builds(SubmissionSpec, columns=st.lists(WORDS, unique=True), spelling=st.just("integer"))),
    )


@st.composite
def tables_for(draw: st.DrawFn, spec: DatasetSpec, *, min_rows: int = 1) -> pa.Table:
    """Draw rows with the columns of a spec: any values, some of them missing, codes that have names and codes that are absent."""
    count = draw(st.integers(min_rows, 6))
    return pa.table({column.name: draw(_values(column, count)) for column in spec.columns})


def _values(column: ColumnSpec, count: int) -> st.SearchStrategy[pa.Array]:
    known = st.sampled_from([code for code, _ in column.values]) if column.values else st.nothing()
    absent = st.sampled_from(column.absent) if column.absent else st.nothing()
    if column.type == "numerical":
        some: st.SearchStrategy[Any] = NUMBERS | absent.map(float)
        kind: Literal["number", "text"] = "number"
    else:
        some, kind = WORDS | known | absent, "text"
    arrow = pa.float64() if kind == "number" else pa.string()
    return st.lists(st.none() | some, min_size=count, max_size=count).map(lambda values: pa.array(values, arrow))
