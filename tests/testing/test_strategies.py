"""The strategies reach what real data has, and whatever they make is valid."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.chunks import HIDDEN
from mlxfp.support.errors import ArgumentError
from mlxfp.testing.comparing import same
from mlxfp.testing.laws import assert_encodes_each_row, check
from mlxfp.testing.strategies import (
    examples,
    pipelines,
    rechunkings,
    schemas,
    sources,
    stages,
    tables,
    templates,
    tokenizers,
)

REACHING = settings(max_examples=20_000, database=None, phases=[Phase.generate])  # stops at the first example


def _has(kind: Callable[[pa.DataType], bool]) -> Callable[[pa.Table], bool]:
    return lambda table: any(kind(field.type) for field in table.schema)


@pytest.mark.parametrize(
    "wanted",
    [
        lambda table: table.num_rows == 0 and table.num_columns > 0,
        lambda table: table.num_columns == 0 and table.num_rows > 0,
        lambda table: table.num_rows > 3 and table.num_columns > 2,
        lambda table: any(column.null_count for column in table.columns),
        lambda table: any(chunk.offset for column in table.columns for chunk in column.chunks),
        lambda table: any(not len(chunk) for column in table.columns for chunk in column.chunks) and table.num_rows,
        lambda table: any(field.name == "" for field in table.schema),
        lambda table: any(not field.name.isascii() for field in table.schema),
        lambda table: any(not field.nullable for field in table.schema),
        _has(pa.types.is_boolean),
        _has(pa.types.is_float16),
        _has(pa.types.is_null),
        _has(pa.types.is_dictionary),
        _has(pa.types.is_map),
        _has(pa.types.is_timestamp),
        _has(lambda kind: isinstance(kind, pa.FixedShapeTensorType)),
        _has(lambda kind: pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)),
        _has(lambda kind: pa.types.is_struct(kind) and any(pa.types.is_list(field.type) for field in kind)),
    ],
)
def test_wild_tables_are_reached(wanted: Callable[[pa.Table], bool]):
    find(tables(), wanted, settings=REACHING)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), 2**63 - 1),
        (pa.int64(), -(2**63)),
        (pa.uint64(), 2**64 - 1),
        (pa.int8(), -128),
        (pa.float64(), float("nan")),
        (pa.float64(), float("-inf")),
        (pa.float64(), -0.0),
        (pa.string(), ""),
        (pa.string(), "é\u0301"),
        (pa.string(), "\0"),
        (pa.list_(pa.int32()), []),
        (pa.bool_(), None),
    ],
)
def test_odd_values_are_reached(kind: pa.DataType, value: Any):
    wanted = tables(pa.schema({"x": kind}))
    find(wanted, lambda table: any(same(found, value) for found in table["x"].to_pylist()), settings=REACHING)


@given(tables())
def test_tables_are_valid(table: pa.Table):
    table.validate(full=True)
    assert not set(HIDDEN) & set(table.column_names)
    assert all(field.nullable or not table[field.name].null_count for field in table.schema)


@given(schemas(min_columns=2, max_columns=3), st.data())
def test_a_schema_that_is_given_is_kept(schema: pa.Schema, data: st.DataObject):
    table = data.draw(tables(schema, min_rows=2, max_rows=3))
    assert 2 <= len(schema) <= 3
    assert table.schema.equals(schema)
    assert 2 <= table.num_rows <= 3
    rows = data.draw(examples(schema, min_rows=1, max_rows=2))
    assert 1 <= len(rows) <= 2
    assert all(list(row) == schema.names for row in rows)


_TYPES_OF_USERS = [
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Europe/Berlin", "+02:00")),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.date32(), pa.date64(), pa.null(), pa.float16()),
    *(pa.decimal32(5, 2), pa.decimal64(12, -2), pa.decimal128(38, 38), pa.decimal256(76, 3), pa.int16(), pa.uint16(), pa.uint32()),
    *(
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.uint16(), pa.timestamp("s")),
        pa.dictionary(pa.int8(), pa.int64(), ordered=True),
    ),
    *(pa.large_string(), pa.large_binary(), pa.string_view(), pa.binary_view(), pa.binary(3), pa.large_list(pa.int8())),
    *(pa.list_(pa.timestamp("s", "UTC"), 2), pa.list_(pa.timestamp("ns")), pa.struct({"a": pa.time32("s"), "b": pa.binary(2)})),
    *(
        pa.map_(pa.int8(), pa.duration("ms")),
        pa.map_(pa.string(), pa.large_list(pa.string())),
        pa.list_(pa.dictionary(pa.int8(), pa.string())),
    ),
    *(pa.json_(), pa.uuid(), pa.bool8(), pa.fixed_shape_tensor(pa.float64(), (2, 2))),
]


@pytest.mark.parametrize("kind", _TYPES_OF_USERS, ids=str)
def test_rows_are_drawn_for_every_type_of_arrow(kind: pa.DataType):
    """A table of the type is valid, and some table holds a value that is not null."""

    @settings(max_examples=10)
    @given(tables(pa.schema([pa.field("x", kind)])))
    def valid(table: pa.Table) -> None:
        table.validate(full=True)
        assert table.schema.field("x").type == kind

    valid()
    if not pa.types.is_null(kind):
        find(tables(pa.schema([pa.field("x", kind)])), lambda table: table["x"].null_count < table.num_rows, settings=REACHING)


@pytest.mark.parametrize(
    "kind",
    [
        pa.month_day_nano_interval(),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.list_(pa.int8())),
        pa.list_(pa.uuid()),
    ],
    ids=str,
)
def test_a_type_without_a_strategy_is_an_error_that_names_the_type(kind: pa.DataType):
    """The laws raise `ArgumentError` for a type whose values cannot be drawn."""
    with pytest.raises(ArgumentError, match=r"schema= has the type .*Use another type, or pass examples="):
        check(fp.filter(bool), schema=pa.schema({"x": kind}))


def test_laws_hold_for_columns_of_times():
    """`check` draws rows of a schema with times."""
    check(fp.filter(bool), schema=pa.schema({"s": pa.timestamp("s"), "us": pa.timestamp("us", "UTC"), "t": pa.time32("s")}))


def test_laws_hold_for_columns_of_views_and_of_dictionaries_of_times():
    """`check` draws views as texts with offsets, as sources do. An empty table may have a dictionary of any values."""
    check(fp.filter(bool), schema=pa.schema({"view": pa.string_view(), "times": pa.dictionary(pa.int8(), pa.timestamp("s"))}))


def test_impossible_schemas_are_refused():
    with pytest.raises(ArgumentError, match=r"min_columns must be at least 0, got min_columns=-1"):
        schemas(min_columns=-1)


@given(st.data())
def test_rechunkings_keep_the_rows(data: st.DataObject):
    table = data.draw(tables(min_columns=1))
    assert same(pa.Table.from_batches(data.draw(rechunkings(table))), table)


@given(schemas(), st.data())
def test_templates_fit_their_schema(schema: pa.Schema, data: st.DataObject):
    data.draw(templates(schema)).check(schema)


@given(sources(max_rows=4))
def test_sources_have_no_stages_and_few_rows(dataset: fp.Dataset[Any]):
    assert dataset.stages == ()
    assert len(list(dataset)) <= 4


KINDS = ["from_table", "from_examples", "from_iterable", "from_chunks", "map", "map_chunks", "filter", "flat_map", "take", "skip"]
KINDS += ["select_columns", "drop_columns", "rename_columns", "shuffle", "repeat", "prefetch", "batch", "unbatch"]


@pytest.fixture(scope="module")
def drawn() -> list[list[str]]:
    """The names of the parts of many pipelines."""
    found: list[list[str]] = []

    @settings(max_examples=1000, database=None)
    @given(pipelines())
    def draw(dataset: fp.Dataset[Any]) -> None:
        found.append([repr(part).partition("(")[0] for part in fp.parts.flat_parts(dataset)])

    draw()
    return found


def test_pipelines_reach_every_part(drawn: list[list[str]]):
    assert {name for parts in drawn for name in parts} >= set(KINDS)


@pytest.mark.parametrize(
    "kinds",
    [("filter", "shuffle"), ("shuffle", "batch"), ("shuffle", "shuffle"), ("filter", "batch"), ("batch", "unbatch")],
)
def test_pipelines_reach_parts_in_a_row(drawn: list[list[str]], kinds: tuple[str, ...]):
    assert any(_in_order(parts, kinds) for parts in drawn)


def _in_order(parts: list[str], kinds: tuple[str, ...]) -> bool:
    rest = iter(parts)
    return all(kind in rest for kind in kinds)


@given(st.data())
def test_stages_fit_whatever_stands_before_them(data: st.DataObject):
    dataset = data.draw(pipelines(max_stages=2))
    assert isinstance(data.draw(stages(dataset))(dataset), fp.Dataset)
    shorter = data.draw(stages(dataset, longer=False))(dataset)
    if shorter.level == dataset.level:
        assert len(list(shorter)) <= len(list(dataset))


@settings(max_examples=25)
@given(tokenizers(), st.lists(st.text(st.characters(codec="utf-8"), max_size=9), min_size=1, max_size=3))
def test_tokenizers_of_every_kind_encode_as_they_tokenize(tokenizer: fp.Tokenizer, texts: list[str]):
    assert_encodes_each_row(fp.tokenize(tokenizer), tokenizer, texts)


@pytest.mark.parametrize("kind", ["BPE", "WordPiece"])
def test_every_kind_of_tokenizer_is_reached(kind: str):
    find(tokenizers(), lambda tokenizer: f'"type":"{kind}"' in tokenizer.json, settings=REACHING)
