"""A plan gives what the pipeline as it was written gives, and its cursors mean the same."""

import pickle
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import attrs
import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest
from attrs import field, frozen
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.collators.texts import text
from mlxfp.core.arrow.conditions import Condition
from mlxfp.core.chunks import RecordBatch, Schema, set_column
from mlxfp.core.datasets import Dataset, unoptimized
from mlxfp.core.describing import explain, schema
from mlxfp.core.planning import Fused, as_written
from mlxfp.core.sources import Position, Source, SourceTraits
from mlxfp.support.errors import SchemaError
from mlxfp.testing.laws import assert_plans_agree, assert_resumable, assert_value
from mlxfp.testing.probing import from_chunks
from mlxfp.testing.strategies import pipelines, rechunkings, tables

COLUMNS = pa.schema([("number", pa.int64()), ("value", pa.float64()), ("text", pa.string()), ("other", pa.int64())])


@frozen(repr=False)
class Strict(Source):
    """Exactly these chunks. It does all that a source may when it is restricted: other columns are gone, other rows are nulls."""

    chunks: tuple[RecordBatch, ...] = field(eq=fp.inspect.fingerprint)
    columns: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()

    def schema(self) -> Schema:
        whole = self.chunks[0].schema
        return pa.schema([whole.field(name) for name in self.columns or whole.names])

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        for place in range(position or 0, len(self.chunks)):
            yield self._kept(self.chunks[place]), place + 1

    @property
    def traits(self) -> SourceTraits:
        return SourceTraits(restricted=self._restricted)

    def _restricted(self, columns: Sequence[str], conditions: tuple[Condition, ...]) -> Source:
        return attrs.evolve(self, columns=tuple(columns), conditions=conditions)

    def _kept(self, chunk: RecordBatch) -> RecordBatch:
        met = np.ones(chunk.num_rows, bool)
        for condition in self.conditions:
            met &= condition.mask(chunk).fill_null(False).to_numpy(zero_copy_only=False)
        places = pa.array(np.where(met, np.arange(chunk.num_rows), -1), pa.int64(), mask=~met)
        return chunk.take(places).select(self.schema().names)


@st.composite
def rewritable(draw: st.DrawFn) -> Dataset[Any]:
    """Draw pipelines in which there is much to rewrite."""
    table = draw(tables(COLUMNS, max_rows=6))
    dataset: Dataset[Any] = fp.from_table(table) if draw(st.booleans()) else Dataset(Strict(tuple(draw(rechunkings(table)))))
    for _ in range(draw(st.integers(1, 7))):
        dataset = draw(stage_after(dataset))(dataset)
    return dataset


def stage_after(dataset: Dataset[Any]) -> st.SearchStrategy[Any]:
    kinds = schema(dataset)
    some = st.lists(st.sampled_from(kinds.names), min_size=1, unique=True)
    passing = st.sampled_from([fp.take(4, redraw=True), fp.skip(1, redraw=True), fp.prefetch(1), fp.repeat(2)])
    choices = [some.map(fp.select_columns), passing]
    if len(kinds) > 1:
        choices += [st.lists(st.sampled_from(kinds.names), min_size=1, max_size=len(kinds) - 1, unique=True).map(fp.drop_columns)]
    fresh = st.permutations([*kinds.names, "new", "text"]).map(lambda names: list(dict.fromkeys(names))[: len(kinds)])
    choices += [fresh.map(lambda names: fp.rename_columns(dict(zip(kinds.names, names, strict=True))))]
    if dataset.level == "examples":
        choices += [
            st.sampled_from(
                [fp.shuffle(seed=1), fp.shuffle(seed=1, buffer=2), fp.shard(0, 2), fp.shard(0, 2, ends="pad"), fp.batch(2), fp.load()]
            )
        ]
        choices += [filters(kinds)] * 2
        choices += [some.map(lambda names: fp.template(" ".join(f"{{{name}}}" for name in names if name), missing="?"))] * 2
    choices += [some.map(lambda names: fp.map(Fingerprints(tuple(names)), schema=pa.schema({"number": pa.int64(), "text": pa.string()})))]
    return st.one_of(choices)


def filters(kinds: Schema) -> st.SearchStrategy[Any]:
    def one(name: str) -> st.SearchStrategy[Any]:
        operators = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
        value = st.text(max_size=2) if kinds.field(name).type == pa.string() else st.integers(-5, 5)
        return st.tuples(st.just(name), operators, value)

    return st.lists(st.sampled_from(kinds.names).flatmap(one), min_size=1, max_size=2).map(fp.filter_by)


@frozen
class Fingerprints:
    """A function of rows that looks at some columns; a value, so that the pipelines are."""

    names: tuple[str, ...]

    def __call__(self, row: Any) -> Any:
        return {"number": len(repr([row[name] for name in self.names])), "text": str(row[self.names[0]])[:3]}


@given(dataset=rewritable(), epoch=st.integers(0, 2))
def test_what_is_rewritten_gives_the_same_and_its_cursors_mean_the_same(dataset, epoch):
    assert_plans_agree(dataset, epoch=epoch)
    assert_resumable(dataset, epoch=epoch)


@given(dataset=pipelines())
def test_random_pipelines_may_be_rewritten(dataset):
    assert_plans_agree(dataset)


@frozen(repr=False)
class Sum(fp.RowWise):
    """It says that it looks at one column, and looks at two."""

    traits = fp.parts.Traits(row_wise=True, columns_read=("a",))

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        total = [
            sum(chunk.column(name).to_pylist()[row] for name in chunk.schema.names if name in ("a", "b")) for row in range(chunk.num_rows)
        ]
        return set_column(chunk, "sum", pa.array(total, pa.int64()))

    def schema(self, schema: Schema) -> Schema:
        return schema.append(pa.field("sum", pa.int64()))


class Swap(type(fp.select_columns(["a"]))):  # type: ignore[misc]  # the class is private
    """It says that it swaps the names of two columns, and leaves them as they are."""

    __slots__ = ()

    traits = fp.parts.Traits(row_wise=True, projection=lambda names: (("a", "b"), ("b", "a")))


@frozen(repr=False)
class Forgetful(Strict):
    """It leaves rows out where it should give nulls."""

    def _kept(self, chunk: RecordBatch) -> RecordBatch:
        return super()._kept(chunk).drop_null() if self.conditions else super()._kept(chunk)


CHUNK = pa.record_batch({"a": [1, 2, 3], "b": [4, 5, 6]})


@pytest.mark.parametrize(
    ("dataset", "broken"),
    [
        (
            fp.pipe(fp.from_table({"a": [1, 2], "b": [3, 4]}), Sum(), fp.select_columns(["sum"])),
            "the same items as the pipeline without optimization",
        ),
        (
            fp.pipe(fp.from_table({"a": [1, 2], "b": [3, 4]}), Swap(("a", "b")), fp.select_columns(["a"])),
            "the same items as the pipeline without optimization",
        ),
        (
            fp.pipe(Dataset(Forgetful((CHUNK, CHUNK))), fp.filter_by([("a", ">", 1)])),
            "the same items as the pipeline without optimization|gives exactly the rest",
        ),
    ],
    ids=["a stage that looks at more", "a choice of another column", "a source that leaves rows out"],
)
def test_the_law_catches(dataset, broken):
    with pytest.raises(AssertionError, match=broken):
        assert_plans_agree(dataset)


def reads(dataset: Dataset[Any]) -> list[str]:
    """Return the columns that the source of all is asked for."""
    source: Any = dataset.plan.source
    while hasattr(source, "dataset"):
        source = source.dataset.plan.source
    names: list[str] = source.schema().names
    return names


def steps(dataset: Dataset[Any]) -> list[tuple[int, int]]:
    """Return of each step which stages it is, from one place to another."""
    return [(step.index, step.stop) for step in dataset.plan.steps]


def cuts(dataset: Dataset[Any]) -> list[list[str]]:
    """Return the texts of the steps in each part of a plan."""
    plan = dataset.plan
    assert plan.steps == (*plan.segment, *plan.stages, *plan.groups)
    return [[step.text for step in part] for part in (plan.segment, plan.stages, plan.groups)]


def test_a_plan_is_cut_at_the_first_state_and_behind_the_last():
    clean, few, grouped, longer, buffered = fp.map(dict), fp.filter(bool), fp.batch(2), fp.map(dict), fp.shuffle(seed=0, buffer=2)
    assert cuts(fp.pipe(TABLE, clean, few)) == [[repr(clean), repr(few)], [], []]
    assert cuts(fp.pipe(TABLE, clean, grouped)) == [[repr(clean)], [repr(grouped)], []]
    assert cuts(fp.pipe(TABLE, grouped, longer)) == [[], [repr(grouped)], [repr(longer)]]
    assert cuts(fp.pipe(TABLE, clean, buffered, few)) == [[repr(clean)], [repr(buffered), repr(few)], []]


@given(pipelines())
def test_the_parts_of_a_plan_are_its_steps_in_order(dataset: Dataset[Any]):
    plan = dataset.plan
    assert plan.steps == (*plan.segment, *plan.stages, *plan.groups)
    assert [step.index for step in plan.steps] == sorted(step.index for step in plan.steps)
    assert not plan.groups or plan.stages
    assert len(plan.host) + len(plan.device) >= len(plan.groups)


TABLE = fp.from_table({"a": [1, 2], "b": [3, 4], "c": [5, 6], "text": ["x", "y"]})


def test_columns_that_nothing_looks_at_are_not_read():
    assert reads(fp.pipe(TABLE, fp.select_columns(["b"]))) == ["b"]
    assert reads(fp.pipe(TABLE, fp.template("{a} {c}"), fp.select_columns(["text", "b"]))) == [
        "a",
        "b",
        "c",
        "text",
    ]  # "text" keeps its place
    assert reads(fp.pipe(TABLE, fp.template("{a}", into="new"), fp.drop_columns(["a", "text"]))) == ["a", "b", "c"]
    assert reads(fp.pipe(TABLE, fp.rename_columns({"a": "z"}), fp.filter_by([("z", ">", 1)]), fp.select_columns(["b"]))) == ["a", "b"]
    assert reads(fp.pipe(TABLE, fp.filter_by([("c", "in", [1])]), fp.shuffle(seed=0, buffer=2), fp.select_columns(["b"]))) == [
        "a",
        "b",
        "c",
        "text",
    ]


def test_stages_of_text_look_at_their_columns_alone():
    texts = fp.from_table({"a": ["one two three", "two"], "b": ["four", "five five"], "c": [1, 2]})
    tokenizer = fp.train_tokenizer(texts, column="a", kind="wordpiece", vocab_size=40)
    for made in (
        fp.tokenize(tokenizer, column="a"),
        fp.tokenize(tokenizer, column="a", pair="b"),
        fp.tokenize(tokenizer, column="a", max_length=4, stride=1),
        fp.compose(fp.tokenize(tokenizer, column="a"), fp.pad(20, pad_id=0)),
    ):
        dataset = fp.pipe(texts, made, fp.select_columns(["input_ids"]))
        assert_plans_agree(dataset)
        assert "c" not in reads(dataset)


def test_columns_end_where_nothing_reads_them_any_more():
    some = fp.pipe(TABLE, fp.filter_by([("a", ">", 0)]), fp.template("{a} {c}", into="new"))
    shuffled = fp.pipe(some, fp.shuffle(seed=0), fp.select_columns(["new"]))
    assert shuffled.plan.source.dataset.plan.schema.names == ["new"]
    assert "template(pattern='{a} {c}', into='new') leaves out 2 columns that nothing reads after it" in explain(shuffled)
    tokenizer = fp.train_tokenizer(fp.from_table({"text": ["1 5", "2 6"]}), kind="wordpiece", vocab_size=40)
    ids = fp.pipe(fp.concat([some, some]), fp.tokenize(tokenizer, column="new"))
    both = fp.pipe(ids, fp.shuffle(seed=0), fp.prefetch(2, workers=2), fp.batch(2), fp.collate(text(pad_id=0, label="b")))
    kept = fp.pipe(some, fp.repeat(2), fp.shuffle(seed=1), fp.filter_by([("b", ">", 3)]), fp.select_columns(["new"]))
    dropped = fp.pipe(TABLE, fp.template("{a} {c} {text}", into="new"), fp.filter_by([("b", ">", 3)]), fp.drop_columns(["text"]))
    for dataset in (shuffled, kept, dropped, both):
        assert_plans_agree(dataset)
    assert schema(some).names == fp.pipe(some, fp.batch(2)).plan.schema.names  # whatever comes out is read


def test_columns_pass_what_only_reorders_or_repeats():
    dataset = fp.pipe(
        TABLE,
        fp.shuffle(seed=0),
        fp.shard(0, 2),
        fp.take(9, redraw=True),
        fp.skip(0, redraw=True),
        fp.repeat(2),
        fp.prefetch(1),
        fp.select_columns(["b"]),
    )
    assert reads(dataset) == ["b"]
    assert_plans_agree(dataset)


def test_rows_in_a_position_have_all_columns():
    rows = Dataset(Strict((CHUNK, CHUNK)))
    for ends in ("uneven", "drop", "pad"):
        dataset = fp.pipe(rows, fp.shard(1, 4, ends=ends), fp.select_columns(["b"]))
        assert reads(dataset) == ["a", "b"]
        assert_plans_agree(dataset)


def test_a_function_may_look_at_every_column():
    assert reads(fp.pipe(TABLE, fp.filter(bool), fp.select_columns(["b"]))) == ["a", "b", "c", "text"]
    assert reads(fp.pipe(TABLE, fp.map(dict), fp.select_columns(["b"]))) == ["a", "b", "c", "text"]


def test_a_selection_of_all_columns_before_a_stage_that_reads_all_columns_drops_no_column():
    """The plan leaves out a selection without an effect. The columns needed by the later stages stay the same."""
    kinds = pa.schema({"a": pa.int64(), "b": pa.int64(), "new": pa.int64()})
    widened = fp.pipe(TABLE, fp.select_columns(["a", "b", "c", "text"]), fp.map(_widened, schema=kinds))
    for dataset in (
        fp.pipe(widened, fp.filter(bool)),
        fp.pipe(widened, fp.filter(bool), fp.batch(2)),
        fp.pipe(widened, fp.shuffle(seed=0, buffer=2)),
    ):
        assert_plans_agree(dataset)
    assert list(fp.pipe(widened, fp.filter(bool))) == [{"a": 1, "b": 3, "new": 6}, {"a": 2, "b": 4, "new": 7}]


def _widened(row: Any) -> dict[str, int]:
    return {"a": row["a"], "b": row["b"], "new": row["c"] + 1}


def test_what_is_kept_is_kept_once_whatever_is_read_of_it(tmp_path):
    for keep in (fp.load(), fp.cache(tmp_path)):
        kept = fp.pipe(TABLE, keep)
        dataset = fp.pipe(kept, fp.shuffle(seed=0), fp.select_columns(["b"]))
        faster = dataset.plan.source.dataset.plan.source
        assert faster.stored is kept.source
        assert (faster.schema().names, repr(faster)) == (["b"], repr(kept.source))
        assert_plans_agree(dataset)
        assert f"{kept.source!r} reads 1 of 4 columns: 'b'" in explain(dataset)


def test_rows_without_columns_still_count():
    dataset = fp.pipe(TABLE, fp.template("the same", into="new"), fp.select_columns(["new"]))
    assert list(dataset) == [{"new": "the same"}] * 2
    assert_plans_agree(dataset)
    assert_plans_agree(fp.pipe(TABLE, fp.drop_columns(["a", "b", "c", "text"])))


def test_stages_that_choose_columns_become_one_or_none():
    dataset = fp.pipe(TABLE, fp.rename_columns({"a": "z"}), fp.drop_columns(["c"]), fp.select_columns(["text", "z"]))
    assert steps(dataset) == [(0, 3)]
    assert dataset.plan.steps[0].stage.columns == (("text", "text"), ("z", "a"))
    assert steps(fp.pipe(TABLE, fp.select_columns(["a", "c"]))) == []


@frozen(repr=False)
class Doubling(fp.RowWise):
    """It turns one row into two, which only a stage that says how it steps may do."""

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        return chunk

    def step(self, state: Any, chunk: RecordBatch) -> tuple[Any, Any]:
        return state, (chunk, chunk)


def test_neighbouring_row_by_row_stages_run_as_one():
    one, other = fp.map(dict), fp.template("{a}")
    assert steps(fp.pipe(TABLE, one, other, one, fp.batch(2), other, fp.map(dict))) == [(0, 3), (3, 4), (4, 6)]
    for dataset in (
        fp.pipe(TABLE, one, other, fp.batch(1), other, other),
        fp.pipe(TABLE, one, fp.filter(bool), other, one, fp.take(1), one, one),
        fp.pipe(TABLE, one, other, Doubling(), other, one),
        fp.pipe(TABLE, other, fp.load(), fp.shuffle(seed=1), other, one),
        fp.pipe(TABLE, fp.map(Fingerprints(("a",))), fp.template("{number}"), fp.select_columns(["text"]), fp.template("{text}{text}")),
    ):
        assert "run as one" in explain(dataset)
        assert_plans_agree(dataset)
        assert_resumable(dataset)


def test_a_stage_that_steps_in_its_own_way_is_not_fused():
    dataset = fp.pipe(TABLE, fp.template("{a}"), Doubling(), fp.template("{b}"))
    assert dataset.plan.steps == as_written(dataset).steps
    assert len(list(dataset)) == 4


def test_the_law_catches_stages_that_are_fused_in_another_order():
    dataset = fp.pipe(TABLE, fp.template("{a}"), fp.template("{text}{text}"))

    class Swapped(Fused):
        __slots__ = ()

        def apply(self, chunk: RecordBatch) -> RecordBatch:
            return Fused(self.stages[::-1], self.texts).apply(chunk)

    with (
        patch("mlxfp.core.planning.Fused", Swapped),
        pytest.raises(AssertionError, match="the same items as the pipeline without optimization"),
    ):
        assert_plans_agree(dataset)


def test_nothing_is_rewritten_where_there_is_nothing_to_gain():
    for dataset in (
        TABLE,
        fp.pipe(TABLE, fp.map(dict), fp.batch(2)),
        fp.pipe(TABLE, fp.select_columns(["text", "c", "b", "a"])),
        fp.pipe(TABLE, fp.take(1)),
    ):
        assert (dataset.plan.steps, dataset.plan.source) == (as_written(dataset).steps, dataset.source)


def test_planning_changes_nothing_of_what_was_written():
    dataset = fp.pipe(TABLE, fp.template("{a}"), fp.select_columns(["text"]))
    before = repr(dataset), fp.inspect.fingerprint(dataset), pickle.dumps(dataset)
    assert dataset.plan.rewrites
    assert (repr(dataset), fp.inspect.fingerprint(dataset), pickle.dumps(dataset)) == before
    assert dataset == fp.pipe(TABLE, fp.template("{a}"), fp.select_columns(["text"]))
    assert_value(dataset)
    grown = fp.pipe(dataset, fp.rename_columns({"text": "t"}), fp.batch(2))
    assert grown == fp.pipe(TABLE, fp.template("{a}"), fp.select_columns(["text"]), fp.rename_columns({"text": "t"}), fp.batch(2))
    assert_plans_agree(grown)
    assert_plans_agree(fp.concat([dataset, dataset]))


def test_errors_name_what_was_written():
    divide = fp.map(lambda row: {"x": 1 / (row["z"] - 2)}, schema=pa.schema({"x": pa.float64()}))
    for dataset in (
        fp.pipe(TABLE, fp.rename_columns({"a": "z"}), fp.select_columns(["z", "b"]), divide),
        fp.pipe(TABLE, fp.template("{b}"), fp.rename_columns({"a": "z"}), divide, fp.template("{x}")),
    ):
        notes = []
        for run in (unoptimized(dataset), dataset):
            with pytest.raises(ZeroDivisionError) as caught:
                list(run)
            notes.append(caught.value.__notes__)
        assert notes[0] == notes[1]
    assert any("source row 1" in note for note in notes[0])


def test_skipped_rows_are_the_same():
    dataset = fp.pipe(
        TABLE, fp.select_columns(["a"]), fp.map(lambda row: {"x": 1 / (row["a"] - 2)}), fp.on_error("skip"), fp.select_columns(["x"])
    )
    found = []
    for run in (unoptimized(dataset), dataset):
        *_, (_, cursor) = fp.iterate(run)
        found.append([(each.origin.row, each.reason) for each in fp.inspect.skipped_rows(dataset, cursor)])
    assert found[0] == found[1] == [(1, "ZeroDivisionError: division by zero")]


def test_a_mistake_is_found_with_the_names_that_were_written():
    with pytest.raises(SchemaError, match="select_columns needs the column 'a', which is missing"):
        list(fp.pipe(TABLE, fp.drop_columns(["a"]), fp.select_columns(["a"])))


def test_a_wrapper_of_batches_has_the_schema_of_what_was_written():
    dataset = fp.pipe(TABLE, fp.batch(2), fp.collate(lambda group: {"a": mx.array([row["a"] for row in group])}), fp.prefetch(1))
    columns = fp.pipe(
        TABLE, fp.map(lambda row: {"input_ids": [row["a"]], "b": row["b"]}), fp.batch(2), fp.collate(text(pad_id=0)), fp.prefetch(1)
    )
    assert schema(dataset).names == ["a", "b", "c", "text"]
    assert schema(columns).names == ["input_ids", "b"]
    assert explain(columns, columns=True).count("input_ids list<int64>, b int64") == 4


def test_building_reads_nothing():
    read: list[int] = []
    dataset = fp.pipe(from_chunks([CHUNK], log=read), fp.select_columns(["a"]), fp.rename_columns({"a": "z"}))
    repr(dataset), hash(dataset), fp.inspect.fingerprint(dataset)
    assert not read


def test_explain_says_what_was_rewritten():
    dataset = fp.pipe(
        TABLE, fp.shuffle(seed=0), fp.template("{a}", into="t"), fp.drop_columns(["a", "text"]), fp.rename_columns({"b": "a"})
    )
    text = explain(dataset).splitlines()
    assert "takes the rows of from_table(2 rows) in the new order" in text[4]
    assert text[-4:] == [
        "rewritten, with the same items and cursors:",
        "    from_table(2 rows) reads 3 of 4 columns: 'a', 'b', 'c'",
        "    drop_columns(columns=('a', 'text')), rename_columns(names=(('b', 'a'),)) choose columns once",
        "    template(pattern='{a}', into='t'), drop_columns(columns=('a', 'text')), rename_columns(names=(('b', 'a'),)) run as one",
    ]
    assert "rewritten" not in explain(fp.pipe(TABLE, fp.batch(2)))
    assert (
        explain(fp.concat([fp.pipe(TABLE, fp.select_columns(["a"])), fp.pipe(TABLE, fp.select_columns(["a"]))])).count(
            "reads 1 of 4 columns"
        )
        == 2
    )
