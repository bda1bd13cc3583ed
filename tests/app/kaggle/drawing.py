"""Specs with their files and rows: two that tests share, and others that hypothesis draws."""

import re
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from mlxfp.app.kaggle.specs.column_kinds import COLUMN_KINDS
from mlxfp.app.kaggle.specs.kinds import TASK_KINDS
from mlxfp.app.kaggle.specs.specs import ColumnSpec, DatasetSpec, FileSpec, SubmissionSpec

WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6) | st.sampled_from(
    ["a: b", "a; b", "\\", "\\;", ":", "; ", "no", "1e-5", "012", "null", " x ", "{x}", "Mr. X", "é", "\n", "12:30", "2020-01-01", "<<"]
)
COLUMN_NAMES = WORDS.filter(lambda name: "\0" not in name)  # Arrow ends names there
NUMBERS = st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, 22.0, 7.25, -0.001, 1e16, 1e300, 5e-324, float("inf"), float("-inf")])

CATS = DatasetSpec(
    name="cats",
    kind="binary",
    train=FileSpec(name="train.csv", rows=2),
    test=FileSpec(name="test.csv"),
    sample=FileSpec(name="sample.csv"),
    id="id",
    target=["y"],
    classes=["0", "1"],
    columns=[ColumnSpec(name="class", type="categorical", values={"a": "first", "b": "second"}), ColumnSpec(name="age", type="numerical")],
    metric="accuracy",
    submission=SubmissionSpec(columns=["id", "y"], spelling="integer"),
)
CATS_FILES = {
    "train.csv": "id,class,age,y\n001,a,3,0\n002,b,,1\n",
    "test.csv": "id,class,age\n003,a,4\n004,b,5.5\n",
    "sample.csv": "id,y\n004,0\n003,0\n",
}
SHIP = DatasetSpec(
    name="ship",
    kind="binary",
    train=FileSpec(name="train.csv"),
    target=["Survived"],
    classes=["0", "1"],
    columns=[
        ColumnSpec(name="Pclass", type="categorical", title="class", values={"1": "first", "3": "third"}),
        ColumnSpec(name="Name", type="text"),
        ColumnSpec(name="Age", type="numerical"),
        ColumnSpec(name="SibSp", type="numerical", title="sibling count", absent=["0"]),
    ],
    metric="accuracy",
)
SHIP_ROWS = pa.table({"Pclass": [3, 1], "Name": ["Ann", "Ben"], "Age": [22.0, 38.5], "SibSp": [1, 2]})

_KINDS: dict[str, tuple[int, int]] = {"binary": (2, 2), "multiclass": (2, 4), "multilabel": (2, 2), "ordinal": (2, 4)}


@st.composite
def column_specs(draw: st.DrawFn, name: str, title: str) -> ColumnSpec:
    kind = draw(st.sampled_from(list(COLUMN_KINDS)))
    names = draw(st.lists(WORDS, max_size=3, unique=True)) if COLUMN_KINDS[kind].has_names else []
    codes = draw(st.lists(WORDS, min_size=len(names), max_size=len(names), unique=True))
    absent = [str(draw(st.integers(-1, 1)))] if COLUMN_KINDS[kind].is_number else draw(st.lists(WORDS, max_size=1))
    return ColumnSpec(
        name=name, type=kind, title=title, values=dict(zip(codes, names, strict=True)), absent=absent if draw(st.booleans()) else ()
    )


@st.composite
def dataset_specs(draw: st.DrawFn) -> DatasetSpec:
    kind = draw(st.sampled_from(sorted(TASK_KINDS)))
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
        metric=draw(st.sampled_from(TASK_KINDS[kind].metrics)),
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
    some: st.SearchStrategy[Any] = NUMBERS | absent.map(float) if column.kind.is_number else WORDS | known | absent
    return st.lists(st.none() | some, min_size=count, max_size=count).map(lambda values: pa.array(values, column.kind.arrow_type))


def read_key_values(text: str, spec: DatasetSpec) -> dict[str, str]:
    r"""Parse a row written with `form="key_value"`: the value of each column as text, as in the file."""
    columns, values, position = {column.title: column for column in spec.columns}, {}, 0
    while position < len(text):
        pair = re.compile(r"((?:[^\\:]|\\.)*): ((?:[^\\;]|\\.)*);(?: |\Z)", re.DOTALL).match(text, position)
        title, value = (re.sub(r"(?s)\\(.)", r"\1", part) for part in pair.groups())
        values[columns[title].name] = {name: code for code, name in columns[title].values}.get(value, value)
        position = pair.end()
    return values
