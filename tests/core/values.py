"""Values that differ, of every kind that has a fingerprint."""

import datetime as dt
import enum
import functools
import json
import math
import operator
import re
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Literal

import attrs
import numpy as np
import pyarrow as pa
import toolz

import mlxfp as fp

FACTOR = 2
TABLE: dict[str, Any] = {}


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@attrs.frozen
class Point:
    x: int
    y: int = attrs.field(default=0, eq=False)


@dataclass(frozen=True)
class Place:
    x: int
    y: int = dataclass_field(default=0, compare=False)


class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def __fingerprint__(self) -> str:
        return self.name

    def method(self, row: Any) -> Any:
        return row


def double(row: Any) -> Any:
    return {"x": row["x"] * FACTOR}


def nested(row: Any) -> Any:
    return {"x": [value + FACTOR for value in row["x"]], "double": double(row)}


def looped(row: Any) -> Any:
    return TABLE["looped"](row) if row else {looped, nested}


TABLE["looped"] = looped


def ping(row: Any) -> Any:
    return pong(row)


def pong(row: Any) -> Any:
    return ping(row)


@functools.lru_cache
def cached(row: Any) -> Any:
    return row


@toolz.curry
def curried(a: Any, b: Any) -> Any:
    return a, b


VALUES: list[Any] = [
    None,
    Annotated,
    ClassVar,
    Annotated[int, "of a kind"],
    Literal["a"],
    list[int],
    list[str],
    int | None,
    lambda value: value is ClassVar,
    True,
    False,
    0,
    1,
    -1,
    2**70,
    0.0,
    -0.0,
    1.0,
    math.inf,
    math.nan,
    1j,
    1 + 0j,
    "",
    "1",
    "a",
    b"",
    b"a",
    bytearray(b"ab"),
    ...,
    (),
    (1,),
    (1, 2),
    ((1,), 2),
    [],
    [1],
    [[1]],
    {},
    {"a": 1},
    {"a": {"b": 1}},
    {1: "a"},
    set(),
    {1},
    frozenset({2}),
    Color.RED,
    Color.BLUE,
    PurePosixPath("a/b"),
    PurePosixPath("a"),
    re.compile("a"),
    re.compile("a", re.IGNORECASE),
    slice(1),
    range(1),
    range(0, 2, 2),
    dt.date(2000, 1, 1),
    dt.datetime(2000, 1, 1),
    dt.datetime(2000, 1, 1, tzinfo=dt.UTC),
    dt.timedelta(1),
    dt.time(1),
    dt.UTC,
    Decimal("1.0"),
    Decimal("1.00"),
    np.int64(1),
    np.int32(1),
    np.float32(1),
    np.zeros(2),
    np.zeros((1, 2)),
    np.zeros(2, np.float32),
    np.array(["a"]),
    np.dtype("i4"),
    np.dtype("i8"),
    pa.int8(),
    pa.int16(),
    pa.schema({"x": pa.int8()}),
    pa.schema({"y": pa.int8()}),
    pa.field("x", pa.int8()),
    pa.field("x", pa.int8(), nullable=False),
    pa.array([1, 2]),
    pa.array([1, None]),
    pa.array([1, 2], pa.int8()),
    pa.table({"x": [1]}),
    pa.table({"y": [1]}),
    pa.table({"x": [1, 1]}),
    pa.array([[1], [2]]),
    pa.array([[1, 2], []]),
    pa.array([{"a": 1}]),
    pa.array([{"a": None}]),
    pa.array([None], pa.struct({"a": pa.int64()})),
    pa.array(["a"]),
    pa.array(["b"]),
    pa.array(["a"]).dictionary_encode(),
    pa.array(["b"]).dictionary_encode(),
    pa.array(["a"], pa.string_view()),
    pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())),
    pa.array([[("b", 1)]], pa.map_(pa.string(), pa.int8())),
    pa.array([1.0]),
    pa.array([-0.0]),
    pa.array([0.0]),
    pa.array([0.0], pa.float16()),
    pa.array([True]),
    pa.array([False]),
    pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((1, 2))),
    pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((1, 2))),
    pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1]), pa.array(["a"])]),
    double,
    nested,
    looped,
    ping,
    pong,
    cached,
    curried,
    curried(1),
    curried(2),
    len,
    max,
    np.add,
    np.multiply,
    math,
    json,
    int,
    Point,
    str.upper,
    operator.itemgetter,
    lambda row: row,
    lambda row: (row, row),
    lambda row, other=1: row,
    lambda row, other=2: row,
    lambda row, *, other=1: row,
    lambda row: [item for item in row if item > 1],
    lambda row: [item for item in row if item > 2],
    functools.partial(double),
    functools.partial(max, key=len),
    functools.partial(max, key=abs),
    functools.partial(max, 1),
    Named("a").method,
    Named("b").method,
    Named("a"),
    Named("b"),
    Point(1),
    Point(2),
    Place(1),
    Place(2),
    fp.batch(2),
    fp.batch(3),
    fp.batch(2, drop_last=True),
    fp.shuffle(seed=0),
    fp.shuffle(seed=1),
    fp.shuffle(seed=0, buffer=2),
    fp.take(1),
    fp.repeat(1),
    fp.filter(double),
    fp.map(double),
    fp.from_table({"x": [1]}),
    fp.from_table({"x": [2]}),
    fp.from_examples([{"x": 1}]),
    fp.pipe(fp.from_table({"x": [1]}), fp.batch(2)),
    fp.pipe(fp.from_table({"x": [1]}), fp.take(2)),
    fp.pipe(fp.from_table({"x": [1]}), fp.take(2), fp.repeat(2)),
    fp.pipe(fp.from_table({"x": [1]}), fp.repeat(2), fp.take(2)),
    fp.concat([fp.from_table({"x": [1]}), fp.from_table({"x": [2]})]),
    fp.concat([fp.from_table({"x": [2]}), fp.from_table({"x": [1]})]),
]
