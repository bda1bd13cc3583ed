"""lift: however an engine cuts a table, and in whatever order and process the parts run, all parts together are the rows of one run."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.chunks import HIDDEN, row_keys
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.strategies import sources, stages

WORDS = ["to", "be", "or", "not", "that", "is", "the", "question"]
TOKENIZER = fp.train_tokenizer(fp.from_examples([{"text": " ".join(WORDS)}] * 3), kind="wordpiece", vocab_size=60)
INTEGERS = pa.schema({"id": pa.int64(), "number": pa.int64()})


def noisy(row: Any, random: np.random.Generator) -> Any:
    return {"id": row["id"], "number": int(random.integers(1000))}


def halves(row: Any) -> Any:
    words = row["text"].split()
    return [{"id": row["id"], "text": " ".join(words[: len(words) // 2])}, {"id": row["id"], "text": " ".join(words[len(words) // 2 :])}]


TEXTS = pa.schema({"id": pa.int64(), "text": pa.string()})
RECIPES = {
    "one stage that draws": fp.map(noisy, seed=3, schema=INTEGERS),
    "tokens that are dropped": fp.compose(
        fp.filter_by([("number", "<", 90)]), fp.template("{text} {number}."), fp.tokenize(TOKENIZER), fp.drop_tokens(0.4, seed=1)
    ),
    "several rows of one": fp.compose(
        fp.flat_map(halves, schema=TEXTS), fp.tokenize(TOKENIZER, max_length=6, stride=1), fp.drop_tokens(0.5, seed=2)
    ),
    "fields in random order": fp.compose(fp.drop_fields(0.3, ["text", "number"], seed=4), fp.template("{text}; {number}; {id}.", seed=5)),
    "columns that are not needed": fp.compose(fp.tokenize(TOKENIZER), fp.drop_tokens(0.4, seed=1), fp.select_columns(["input_ids"])),
    "nothing": fp.compose(),
}


@st.composite
def whole_tables(draw: st.DrawFn) -> pa.Table:
    size = draw(st.integers(0, 30))
    words = draw(st.lists(st.lists(st.sampled_from(WORDS), max_size=8), min_size=size, max_size=size))
    numbers = draw(st.lists(st.integers(0, 99), min_size=size, max_size=size))
    return pa.table(
        {
            "id": pa.array(range(size), pa.int64()),
            "text": pa.array(map(" ".join, words), pa.string()),
            "number": pa.array(numbers, pa.int64()),
        }
    )


def run(table: pa.Table, recipe: Any) -> pa.Table:
    return fp.to_table(fp.pipe(fp.from_table(table), recipe))


@st.composite
def partitions(draw: st.DrawFn, table: pa.Table) -> list[pa.Table]:
    """Give each row to one of some parts, in any order: as engines do that have shuffled or repartitioned the rows."""
    order = draw(st.permutations(range(table.num_rows)))
    cuts = sorted(draw(st.lists(st.integers(0, table.num_rows), max_size=4)))
    return [table.take(pa.array(order[a:b], pa.int64())) for a, b in zip([0, *cuts], [*cuts, table.num_rows], strict=True)]


@given(st.data(), st.sampled_from(sorted(RECIPES)), whole_tables())
def test_rows_with_numbers_give_what_one_pipeline_gives_however_they_are_cut(data: st.DataObject, name: str, table: pa.Table):
    recipe = RECIPES[name]
    lifted = fp.lift(recipe, key="id")
    expected = run(table, recipe)
    assert_same(lifted(table), expected, "a lifted recipe gives the rows of the pipeline")
    parts = data.draw(partitions(table))
    order = [number for part in parts for number in part.column("id").to_pylist()]
    made = pa.concat_tables([lifted(part) for part in parts])
    assert_same(made, run_in_order(table, recipe, order), "parts give the rows of the pipeline")


def run_in_order(table: pa.Table, recipe: Any, order: list[int]) -> pa.Table:
    """Return what the pipeline gives for each row, the rows in another order."""
    tables = [run(table, recipe)] if not order else [one_row(table, recipe, number) for number in order]
    return pa.concat_tables(tables)


def one_row(table: pa.Table, recipe: Any, number: int) -> pa.Table:
    """Run the whole pipeline, and take what came of one row."""
    dataset = fp.pipe(fp.from_table(table), recipe)
    chunks = [chunk for chunk, _ in fp.core.execution.run(dataset, fp.core.execution.start(0, None))]
    found = pa.Table.from_batches(chunks, schema=None if chunks else fp.schema(dataset))
    return found.filter(pa.array(np.array(found.column("__row__")) == number)).drop_columns([*HIDDEN]).cast(fp.schema(dataset))


@given(st.data(), st.sampled_from(sorted(RECIPES)), whole_tables())
def test_slices_with_their_offsets_give_what_one_pipeline_gives(data: st.DataObject, name: str, table: pa.Table):
    lifted = fp.lift(RECIPES[name])
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, table.num_rows), max_size=4))), table.num_rows]
    made = [lifted(table.slice(a, b - a), offset=a) for a, b in pairwise(cuts)]
    assert_same(pa.concat_tables(made), run(table, RECIPES[name]), "slices give the rows of the pipeline")


@given(st.data(), whole_tables(), st.sampled_from(["text", "large text", "bytes", "dictionary", "fixed bytes", "negative", "large"]))
def test_any_key_gives_a_row_the_same_whatever_part_it_is_in(data: st.DataObject, table: pa.Table, kind: str):
    names = [f"row-{number:04}" for number in range(table.num_rows)]
    keys = {
        "text": pa.array(names, pa.string()),
        "large text": pa.array(names, pa.large_string()),
        "bytes": pa.array([name.encode() for name in names], pa.binary()),
        "dictionary": pa.array(names, pa.string()).dictionary_encode(),
        "fixed bytes": pa.array([name.encode() for name in names], pa.binary(8)),
        "negative": pa.array([-1 - number for number in range(len(names))], pa.int64()),
        "large": pa.array([2**64 - 1 - number for number in range(len(names))], pa.uint64()),
    }
    table = table.append_column("key", keys[kind])
    recipe = RECIPES["tokens that are dropped"]
    lifted = fp.lift(recipe, key="key")
    whole = {row["id"]: row for row in lifted(table).to_pylist()}
    parts = data.draw(partitions(table))
    assert {row["id"]: row for part in parts for row in lifted(part).to_pylist()} == whole


def test_keys_of_one_value_draw_the_same_whatever_type_holds_it():
    recipe = fp.map(noisy, seed=3, schema=INTEGERS)
    plain = pa.table({"id": range(50), "key": [f"k{number}" for number in range(50)]})
    for kind in (pa.large_string(), pa.string_view(), pa.binary()):
        other = plain.set_column(1, "key", plain.column("key").cast(kind))
        assert fp.lift(recipe, key="key")(other).equals(fp.lift(recipe, key="key")(plain))
    small = plain.set_column(0, "id", plain.column("id").cast(pa.uint8()))
    numbers = fp.lift(recipe, key="id")(plain).column("number").to_pylist()
    assert fp.lift(recipe, key="id")(small).column("number").to_pylist() == numbers
    assert len(set(fp.lift(recipe, key="key")(plain).column("number").to_pylist())) > 40


def test_parts_without_keys_would_have_drawn_the_same():
    """What the refusal is about: the same numbers in every part."""
    recipe = fp.map(noisy, seed=3, schema=INTEGERS)
    parts = [pa.table({"id": range(first, first + 20)}) for first in (0, 20, 40)]
    drawn = [fp.lift(recipe)(part, offset=0).column("number").to_pylist() for part in parts]
    assert drawn[0] == drawn[1] == drawn[2]
    apart = [fp.lift(recipe, key="id")(part).column("number").to_pylist() for part in parts]
    assert all(a != b for i, row in enumerate(apart) for other in apart[:i] for a, b in [(row, other)])


@given(st.data())
def test_what_pipelines_of_stages_give_is_given_or_refused_with_a_sentence(data: st.DataObject):
    dataset = data.draw(sources())
    if dataset.level != "examples":
        return
    recipe = data.draw(stages(dataset))
    table = fp.to_table(dataset)
    try:
        made = fp.lift(recipe)(table, offset=0)
    except fp.errors.PipelineError as error:
        assert "cannot be used with lift" in str(error)  # noqa: PT017  # it may also not be raised
    except fp.errors.SchemaError as error:
        assert "is not declared" in str(error)  # noqa: PT017  # the same
    else:
        assert_same(made, run(table, recipe), "a lifted recipe gives the rows of the pipeline")


ACROSS = {
    "shuffle": fp.shuffle(seed=0),
    "shuffle in a buffer": fp.shuffle(seed=0, buffer=10),
    "take": fp.take(3),
    "skip": fp.skip(3),
    "repeat": fp.repeat(2),
    "shard": fp.shard(0, 2),
    "load": fp.load(),
    "cache": fp.cache("nowhere"),
    "prefetch": fp.prefetch(2),
    "windows": fp.windows(4, column="tokens"),
    "pack": fp.pack(8, column="tokens"),
    "batch": fp.batch(4),
    "batch_by_tokens": fp.batch_by_tokens(32, column="tokens"),
    "bucket_by_length": fp.bucket_by_length([4, 8], size=2, column="tokens"),
    "on_error": fp.compose(fp.filter(bool), fp.on_error("skip")),
}


@pytest.mark.parametrize("name", ACROSS)
def test_what_looks_across_rows_is_refused_by_its_name(name: str):
    with pytest.raises(fp.errors.PipelineError, match=r"cannot be used with lift.*Remove this stage from the recipe") as caught:
        fp.lift(fp.compose(fp.filter_by([("x", ">", 1)]), ACROSS[name]))
    assert str(caught.value).startswith(name.partition(" ")[0])


def test_other_data_in_a_recipe_is_refused():
    other = fp.from_table({"x": [1]})
    with pytest.raises(fp.errors.PipelineError, match=r"^from_table\(1 rows\) cannot be used with lift"):
        fp.lift(lambda rows: other)
    with pytest.raises(fp.errors.ArgumentTypeError, match=r"A recipe must return a dataset, got str from repr"):
        fp.lift(repr)  # type: ignore[arg-type]  # the mistake that is tested
    with pytest.raises(fp.errors.ArgumentTypeError, match="recipe must be a function"):
        fp.lift(3)  # type: ignore[arg-type]  # the mistake that is tested


TABLE = pa.table({"id": range(4), "name": ["a", "b", "c", None], "price": [1.5, 2.5, 3.5, 4.5], "number": range(4)})

UNBUILT = {
    "select": fp.select([1, 0]),
    "concat": lambda rows: fp.concat([rows, fp.from_table({"x": [1]})]),
    "columns": lambda rows: fp.pipe(rows, fp.drop_columns(fp.schema(rows).names[1:])),
    "length": lambda rows: fp.pipe(rows, fp.filter_by([("x", "<", fp.length(rows))])),
    "split": lambda rows: fp.split([0.5, 0.5], seed=0)(rows)[0],
}


@pytest.mark.parametrize("recipe", UNBUILT.values(), ids=UNBUILT)
def test_a_recipe_that_asks_for_columns_or_rows_when_it_is_built_is_refused(recipe: Any):
    with pytest.raises(
        fp.errors.PipelineError, match=r"before any table exists.*reads columns or the number of rows|cannot be used with lift"
    ):
        fp.lift(recipe)


DRAWS = fp.map(noisy, seed=3, schema=INTEGERS)


def test_stages_that_draw_are_refused_where_rows_have_no_keys():
    with pytest.raises(
        fp.errors.PipelineError,
        match=r"^map\(.* needs key or offset, because it would draw the same random numbers in every table.*key=\"id\".*offset=4096",
    ):
        fp.lift(fp.compose(fp.filter_by([("id", ">", 1)]), DRAWS))(TABLE)
    for recipe in (fp.template("{name}; {id}.", seed=1), fp.drop_fields(0.1, ["name"], seed=0)):
        with pytest.raises(fp.errors.PipelineError, match="would draw the same random numbers"):
            fp.lift(recipe)(TABLE)
    assert fp.lift(fp.template("{name}"))(TABLE).num_rows == 4


@frozen(repr=False)
class Signed(fp.RowWise):
    """Gives rows a sign by their key."""

    traits = fp.parts.Traits(row_wise=True, draws=True)

    def apply(self, chunk: pa.RecordBatch) -> pa.RecordBatch:
        return chunk.set_column(0, "id", pa.array((row_keys(chunk) % 2).astype(np.int64)))


def test_a_stage_of_ones_own_says_that_it_draws():
    with pytest.raises(fp.errors.PipelineError, match=r"^signed\(\) needs key or offset, because it would draw"):
        fp.lift(Signed())(TABLE)
    assert fp.lift(Signed(), key="id")(TABLE).equals(run(TABLE, Signed()))


def test_keys_that_cannot_be_are_refused():
    with pytest.raises(fp.errors.DataError, match="The key column 'name' is null in row 3 of the table"):
        fp.lift(DRAWS, key="name")(TABLE)
    hidden_null = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 0], pa.int32()), pa.array(["a", None]))
    with pytest.raises(fp.errors.DataError, match="The key column 'key' is null in row 1 of the table"):
        fp.lift(DRAWS, key="key")(TABLE.append_column("key", hidden_null))
    with pytest.raises(fp.errors.SchemaError, match="The key column 'price' needs integers, text or bytes, got double"):
        fp.lift(DRAWS, key="price")(TABLE)
    with pytest.raises(fp.errors.SchemaError, match=r"the column 'nam'.*Did you mean 'name'"):
        fp.lift(DRAWS, key="nam")(TABLE)
    with pytest.raises(
        fp.errors.ArgumentError, match="lift takes row numbers from key or from offset, not from both: got key='id' and offset=3"
    ):
        fp.lift(DRAWS, key="id")(TABLE, offset=3)
    with pytest.raises(fp.errors.ArgumentError, match="offset must be at least 0"):
        fp.lift(DRAWS)(TABLE, offset=-1)
    with pytest.raises(fp.errors.ArgumentTypeError, match="offset"):
        fp.lift(DRAWS)(TABLE, offset="3")  # type: ignore[arg-type]  # the mistake that is tested
    with pytest.raises(fp.errors.ArgumentTypeError, match="key must be a string"):
        fp.lift(DRAWS, key=3)  # type: ignore[arg-type]  # the mistake that is tested
    assert fp.lift(DRAWS)(TABLE, offset=np.int64(7)).equals(fp.lift(DRAWS)(TABLE, offset=7))


def test_a_function_without_a_declared_schema_is_refused_with_what_it_gave():
    plain = fp.lift(fp.map(lambda row: {"double": row["id"] * 2}))
    with pytest.raises(
        fp.errors.SchemaError, match=r"The schema of map\(.*is not declared.*got double int64 from the rows of.* Declare the schema"
    ):
        plain(TABLE)
    with pytest.raises(fp.errors.SchemaError, match="got no columns from the rows of one table"):
        plain(TABLE.slice(0, 0))
    declared = fp.lift(fp.map(lambda row: {"double": row["id"] * 2}, schema=pa.schema({"double": pa.int64()})))
    assert declared(TABLE).column("double").to_pylist() == [0, 2, 4, 6]


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_tables_without_rows_have_the_schema_of_those_with_rows(name: str):
    kinds = pa.schema({"id": pa.int64(), "text": pa.string(), "number": pa.int64()})
    table = pa.table({"id": [0, 1], "text": ["to be", "or not"], "number": [3, 4]}, schema=kinds)
    for lifted in (fp.lift(RECIPES[name], key="id"), fp.lift(RECIPES[name], key="text")):
        for empty in (kinds.empty_table(), pa.Table.from_batches([], schema=kinds), table.slice(1, 0)):
            assert lifted(empty).schema.equals(lifted(table).schema)
            assert lifted(empty).schema.equals(fp.schema(fp.pipe(fp.from_table(table), RECIPES[name])))
            assert lifted(empty).num_rows == 0
        assert lifted.schema(kinds).equals(lifted(table).schema)
    assert fp.lift(RECIPES[name]).schema(kinds).equals(fp.lift(RECIPES[name], key="id").schema(kinds))  # also where it asks for keys


def test_the_kind_of_table_that_is_given_is_given_back():
    lifted = fp.lift(fp.compose(fp.filter_by([("id", ">", 0)]), fp.template("{name}!")))
    expected = ["b!", "c!", "unknown!"]
    batch = TABLE.to_batches()[0]
    assert isinstance(lifted(batch), pa.RecordBatch)
    assert lifted(batch).column("text").to_pylist() == lifted(TABLE).column("text").to_pylist() == expected
    arrays = lifted({"id": np.arange(4), "name": ["a", "b", "c", None], "image": np.zeros((4, 2, 3), np.uint8)})
    assert arrays["text"].tolist() == expected
    assert arrays["image"].shape == (3, 2, 3)
    assert arrays["id"].dtype == np.int64
    pieces = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1, 0), TABLE.slice(1)])
    assert lifted(pieces).column("text").to_pylist() == expected
    for wrong in ([{"id": 1}], fp.from_table(TABLE), None):
        with pytest.raises(
            fp.errors.ArgumentTypeError,
            match="A function made by lift takes a pyarrow Table or RecordBatch, a DataFrame of pandas or polars",
        ):
            lifted(wrong)
    with pytest.raises(fp.errors.SchemaError, match="reserved name"):
        lifted(TABLE.append_column("__row__", pa.array(range(4))))


def test_frames_of_pandas_and_polars_come_back_as_such():
    lifted = fp.lift(fp.compose(fp.filter_by([("id", ">", 0)]), fp.template("{name}!")))
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": range(3), "name": ["a", "b", "c"]}, index=[5, 6, 7])
    assert isinstance(lifted(frame), pandas.DataFrame)
    assert lifted(frame).to_dict("list") == {"id": [1, 2], "name": ["b", "c"], "text": ["b!", "c!"]}
    polars = pytest.importorskip("polars")
    found = lifted(polars.DataFrame({"id": range(3), "name": ["a", "b", "c"]}))
    assert isinstance(found, polars.DataFrame)
    assert found["text"].to_list() == ["b!", "c!"]


def fails(row: Any) -> Any:
    if row["id"] == 7002:
        raise KeyError("colour")
    return row


def test_an_error_names_the_row():
    failing = fp.map(fails, schema=pa.schema({"id": pa.int64(), "name": pa.string()}))
    part = pa.table({"id": [7001, 7002], "name": ["x", "y"]})
    notes = {}
    for case, call in {
        "number": lambda: fp.lift(failing, key="id")(part),
        "offset": lambda: fp.lift(failing)(part, offset=90),
        "text": lambda: fp.lift(failing, key="name")(part),
    }.items():
        with pytest.raises(KeyError, match="colour") as caught:
            call()
        notes[case] = " ".join(caught.value.__notes__)
    assert "source row 7002" in notes["number"]
    assert "source row 91" in notes["offset"]
    assert "counted from 90" in notes["offset"]
    assert "source row 1" in notes["text"]
    assert "the first key is ['x']" in notes["text"]
    assert all("in a table of 2 rows for lift(" in note for note in notes.values())


def test_a_lifted_recipe_is_a_value():
    lifted, again = fp.lift(RECIPES["tokens that are dropped"], key="id"), fp.lift(RECIPES["tokens that are dropped"], key="id")
    table = pa.table({"id": range(9), "text": ["to be or not"] * 9, "number": range(9)})
    before = pickle.dumps(lifted)
    made = lifted(table)
    assert (lifted, hash(lifted), fp.inspect.fingerprint(lifted)) == (again, hash(again), fp.inspect.fingerprint(again))
    assert pickle.dumps(lifted) == before  # what it has planned is not part of it: other engines name results by the bytes of a function
    assert lifted != fp.lift(RECIPES["tokens that are dropped"])
    assert fp.inspect.fingerprint(lifted) != fp.inspect.fingerprint(fp.lift(RECIPES["nothing"], key="id"))
    assert pickle.loads(before)(table).equals(made)
    assert repr(fp.lift(fp.template("{x}"), key="id")) == "lift(template(pattern='{x}'), key='id')"


def test_functions_without_a_name_travel_with_cloudpickle():
    cloudpickle = pytest.importorskip("cloudpickle")
    lifted = fp.lift(fp.map(lambda row: {"id": row["id"] + 1}, schema=pa.schema({"id": pa.int64()})))
    assert pickle.loads(cloudpickle.dumps(lifted))(TABLE).column("id").to_pylist() == [1, 2, 3, 4]


def test_a_part_runs_in_few_chunks_as_a_chunk_costs_time_and_nobody_waits_for_the_first_rows():
    sizes = []

    def counted(chunk: pa.RecordBatch) -> pa.RecordBatch:
        sizes.append(chunk.num_rows)
        return chunk

    for rows, text, expected in ((3000, "", [3000]), (20_000, "", [16_384, 3616]), (6000, 1000 * "x", [4096, 1904])):
        table = pa.table({"id": pa.array(range(rows), pa.int64()), "text": [text] * rows})
        assert fp.lift(fp.map_chunks(counted, schema=table.schema))(table).equals(table)
        assert sizes == expected
        sizes.clear()


def test_plans_are_made_once_for_a_schema():
    lifted = fp.lift(RECIPES["tokens that are dropped"], key="id")
    tables = [pa.table({"id": [number], "text": ["to be"], "number": [1]}) for number in range(20)]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lifted, tables))
    assert len(lifted.plans) == 1
    whole = pa.concat_tables(tables)
    assert pa.concat_tables(made).equals(run(whole, RECIPES["tokens that are dropped"]))
    lifted(whole.select(["number", "text", "id"]))
    assert len(lifted.plans) == 2
