import pickle
import re
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.chunks import RecordBatch
from mlxfp.core.describing import explain, length, schema
from mlxfp.data.rows.map_filter import filter, flat_map, map, skip, take
from mlxfp.data.running.error_rows import FORGIVEN, OnError, SkippedRow, on_error, skipped_rows
from mlxfp.support.errors import (
    ArgumentError,
    ArgumentTypeError,
    CursorMismatchError,
    DataError,
    PipelineError,
    SchemaError,
    UnknownNameError,
)
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.laws import (
    assert_chunks_do_not_matter,
    assert_described,
    assert_lazy,
    assert_pure_stages,
    assert_repeatable,
    assert_replay_is_bounded,
    assert_resumable,
    assert_told_apart,
    assert_transparent,
    assert_value,
)
from mlxfp.testing.laws.datasets import collect
from mlxfp.testing.probing import from_chunks
from mlxfp.testing.strategies import pipelines, rechunkings, tables

NUMBERS = pa.schema({"x": pa.int64()})
PAIRS = pa.schema({"x": pa.int64(), "y": pa.int64()})
ANY = {"max_rate": 1.0}


def numbers(count):
    return fp.from_table({"x": np.arange(count)})


def strict(bad, row):
    if row["x"] in bad:
        raise ValueError(f"{row['x']} is bad")
    return {"x": row["x"], "y": row["x"] * 2}


def picky(bad, row):
    return strict(bad, row)["x"] % 3 > 0


def doubled(bad, row):
    return [strict(bad, row), {"x": -1, "y": row["x"]}]


def not_two(row):
    return {"x": row["x"], "y": 1 / (row["x"] - 2)}


def not_four(row):
    return row["x"] != 4 or row["four"]


def values(dataset):
    return [row["x"] for row in dataset]


def ledger(dataset):
    """What was skipped, by an iteration to the end."""
    cursor = list(fp.iterate(dataset))[-1][1]
    return skipped_rows(dataset, cursor)


# Parts that keep failed rows in their places, so that leaving the rows out at the end is leaving them out of the plain pipeline.
KEEPING = {
    "nothing": fp.compose(),
    "shuffle": fp.shuffle(seed=1),
    "take": take(7),
    "skip": skip(2),
    "shard": fp.shard(1, 2),
    "select": fp.select([5, 0, 3, 3]),
    "repeat": fp.repeat(2),
    "load": fp.load(),
    "load and shuffle": fp.compose(fp.load(), fp.shuffle(seed=2)),
    "prefetch": fp.prefetch(2),
    "batch and unbatch": fp.compose(fp.batch(3), fp.unbatch()),
}


@pytest.mark.parametrize("keeping", KEEPING.values(), ids=KEEPING)
@settings(max_examples=10)
@given(bad=st.frozensets(st.integers(0, 11)), more=st.frozensets(st.integers(0, 11)))
def test_the_rows_that_fail_are_left_out_and_the_others_are_as_without_them(keeping, bad, more):
    plain = fp.pipe(numbers(12), map(partial(strict, frozenset())), keeping, map(partial(strict, frozenset())))
    parts = map(partial(strict, bad), schema=PAIRS), keeping, map(partial(strict, more), schema=PAIRS)
    failing = fp.pipe(numbers(12), *parts, on_error("skip", **ANY))
    expected = collect(fp.pipe(plain, filter(lambda row: row["x"] not in bad | more)))
    assert_same(collect(failing), expected, "what does not fail comes out")
    assert_resumable(failing)


@given(bad=st.frozensets(st.integers(0, 11)), rows=st.permutations(range(12)), data=st.data())
def test_stages_with_states_see_only_the_rows_that_are_well(bad, rows, data):
    stages = data.draw(st.sampled_from([fp.shuffle(seed=1, buffer=4), fp.compose(fp.shuffle(seed=1, buffer=3), map(dict, schema=PAIRS))]))
    chunks = data.draw(rechunkings(pa.table({"x": rows})))
    failing = fp.pipe(from_chunks(chunks), map(partial(strict, bad), schema=PAIRS), stages, on_error("skip", **ANY))
    good = fp.pipe(from_chunks(chunks), filter(lambda row: row["x"] not in bad), map(partial(strict, frozenset()), schema=PAIRS), stages)
    assert_same(collect(failing), collect(good), "stages with states go on without the failed rows")
    assert_resumable(failing)


@given(bad=st.frozensets(st.integers(0, 9)), worse=st.frozensets(st.integers(0, 9)), data=st.data())
def test_filters_and_flat_maps_skip_what_fails_in_them(bad, worse, data):
    chunks = data.draw(rechunkings(pa.table({"x": range(10)})))
    failing = fp.pipe(from_chunks(chunks), filter(partial(picky, bad)), flat_map(partial(doubled, worse)), on_error("skip", **ANY))
    expected = [x for x in range(10) if x not in bad and x % 3 > 0 and x not in worse]
    assert values(failing) == [each for x in expected for each in (x, -1)]


@given(bad=st.frozensets(st.integers(0, 11), min_size=1), more=st.frozensets(st.integers(0, 11)), data=st.data())
def test_the_list_of_skipped_rows_is_exact_wherever_the_run_was_resumed(bad, more, data):
    chunks = data.draw(rechunkings(pa.table({"x": range(12)})))
    dataset = fp.pipe(
        from_chunks(chunks),
        map(partial(strict, bad), schema=PAIRS),
        fp.shuffle(seed=0, buffer=3),
        filter(partial(picky, more)),
        on_error("skip", **ANY),
        fp.batch(2),
    )
    whole = list(fp.iterate(dataset))
    expected = {(x, "map" if x in bad else "filter", f"ValueError: {x} is bad") for x in bad | more}
    if whole:
        found = skipped_rows(dataset, whole[-1][1])
        assert {(each.origin.row, each.stage.partition("(")[0], each.reason) for each in found} == expected
        assert len(found) == len(expected)
    for _, cursor in whole:
        copied = fp.Cursor.from_bytes(cursor.to_bytes())
        assert skipped_rows(dataset, copied) == skipped_rows(dataset, cursor) == found[: len(skipped_rows(dataset, cursor))]
        *_, (_, last) = [(None, copied), *fp.iterate(dataset, copied)]
        assert skipped_rows(dataset, last) == found


def test_the_list_names_rows_stages_and_reasons():
    dataset = fp.pipe(numbers(6), map(not_two), filter(not_four), on_error("skip"))
    source = numbers(6).source
    assert ledger(dataset) == (
        SkippedRow(fp.inspect.Origin(source, 2), "map(function=not_two)", "ZeroDivisionError: division by zero"),
        SkippedRow(fp.inspect.Origin(source, 4), "filter(predicate=not_four)", "KeyError: 'four'"),
    )


def test_a_long_reason_is_shortened():
    def lengthy(row):
        raise ValueError("long " * 100)

    (only,) = ledger(fp.pipe(numbers(2), map(lambda row: lengthy(row) if row["x"] else row, schema=NUMBERS), on_error("skip")))
    assert only.reason == "ValueError: " + ("long " * 100)[:185] + "..."


def test_the_list_of_joined_datasets_names_the_source():
    a, b = numbers(3), fp.from_examples([{"x": 10}, {"x": 11}])
    dataset = fp.pipe(fp.concat([fp.pipe(a, fp.shuffle(seed=0)), b]), map(partial(strict, {1, 11})), on_error("skip"))
    assert sorted((each.origin.source == b.source, each.origin.row) for each in ledger(dataset)) == [(False, 1), (True, 1)]
    assert sorted(values(dataset)) == [0, 2, 10]


@pytest.mark.parametrize("join", [fp.interleave, fp.concat, partial(fp.mix, weights=[2, 1], stop="all")])
def test_datasets_are_joined_whether_or_not_they_have_stages(join):
    dataset = fp.pipe(join([fp.pipe(numbers(4), map(lambda row: {"x": 6 // row["x"]})), numbers(3)]), on_error("skip"))
    assert sorted(values(dataset)) == [0, 1, 2, 2, 3, 6]
    assert_resumable(dataset)


def test_a_dataset_that_has_its_own_list_may_be_joined_with_others():
    dataset = fp.pipe(
        fp.interleave([fp.pipe(numbers(4), map(lambda row: {"x": 6 // row["x"]}), on_error("skip")), numbers(3)]), fp.batch(2)
    )
    cursor = list(fp.iterate(dataset))[-1][1]
    assert [(each.origin.source, each.origin.row) for each in skipped_rows(dataset, cursor)] == [(numbers(4).source, 0)]
    both = fp.concat(
        [fp.pipe(numbers(2), map(partial(strict, {1})), on_error("skip")), fp.pipe(numbers(3), map(partial(strict, {0})), on_error("skip"))]
    )
    assert [each.origin.row for each in ledger(both)] == [0]  # where datasets follow each other, the run keeps the state of one


def test_a_list_after_repeat_has_all_passes_and_one_before_it_the_current_one():
    after = fp.pipe(numbers(3), map(partial(strict, {1})), fp.repeat(3), on_error("skip", **ANY))
    before = fp.pipe(numbers(3), map(partial(strict, {1})), on_error("skip"), fp.repeat(3))
    assert [each.origin.row for each in ledger(after)] == [1, 1, 1]
    assert [each.origin.row for each in ledger(before)] == [1]
    assert values(after) == values(before) == [0, 2] * 3


@given(data=st.data())
def test_where_nothing_fails_everything_is_as_without_it(data):
    dataset = data.draw(pipelines())
    if dataset.level == "examples" and any(isinstance(part, fp.Stage) for part in fp.parts.flat_parts(dataset)):
        assert_transparent(on_error("skip"), dataset)
        assert_repeatable(on_error("skip")(dataset))
        assert_same(collect(on_error("skip")(dataset)), collect(dataset), "also hidden columns are the same")
        assert_described(on_error("skip")(dataset))


@given(table=tables(min_rows=1), data=st.data())
def test_columns_of_any_type_can_be_missing_in_a_failed_row(table, data):
    bad = data.draw(st.sets(st.integers(0, table.num_rows - 1), max_size=table.num_rows - 1))
    chunks = data.draw(rechunkings(table))
    dataset = fp.pipe(from_chunks(chunks), _Fails(frozenset(bad)), fp.load(), fp.shuffle(seed=0), on_error("skip", **ANY))
    good = fp.pipe(from_chunks(chunks), fp.load(), fp.shuffle(seed=0))
    found, expected = collect(dataset), collect(good)
    expected = expected.filter(pa.array([row not in bad for row in expected["__row__"].to_pylist()], pa.bool_()))
    assert_same(found, expected, "the other rows are whole")


@given(bad=st.frozensets(st.integers(0, 7)), data=st.data())
def test_it_is_pure_lazy_and_blind_to_where_chunks_end(bad, data):
    table = pa.table({"x": range(8)})
    chunks, others = data.draw(rechunkings(table)), data.draw(rechunkings(table))
    transform = fp.compose(map(partial(strict, bad), schema=PAIRS), on_error("skip", **ANY))
    assert_pure_stages(transform(from_chunks(chunks)))
    assert_chunks_do_not_matter(transform, chunks, others)
    assert_replay_is_bounded(transform, chunks)
    if not bad:
        assert_lazy(transform, chunks)


def test_a_broken_guard_is_caught():
    class ForgetfulOnError(OnError):
        """Forgets what it skipped before."""

        def step(self, state, chunk):
            after, out = super().step((state[0], ()), chunk)
            return after, out

    dataset = fp.pipe(
        from_chunks([pa.record_batch({"x": [x]}) for x in range(4)]), map(partial(strict, {1, 2}), schema=PAIRS), on_error("skip")
    )
    broken = evolve(dataset, stages=(*dataset.stages[:-1], ForgetfulOnError("skip")))
    assert len(ledger(broken)) == 0
    assert len(ledger(dataset)) == 2


def test_rows_at_the_end_that_fail_are_in_the_list_though_nothing_comes_after_them():
    dataset = fp.pipe(
        from_chunks([pa.record_batch({"x": [x]}) for x in range(5)]),
        map(partial(strict, {0, 3, 4}), schema=PAIRS),
        on_error("skip"),
        fp.batch(2),
    )
    assert [each.origin.row for each in ledger(dataset)] == [0, 3, 4]


def test_schemas_are_inferred_from_rows_that_are_well():
    texts = fp.from_examples([{"x": "one"}, {"x": "two"}, {"x": "3"}] + [{"x": str(x)} for x in range(500)])
    parsed = fp.pipe(texts, map(lambda row: {"x": int(row["x"])}), map(lambda row: {"x": 1 / row["x"]}), on_error("skip", **ANY))
    assert schema(parsed) == pa.schema({"x": pa.float64()})
    assert len(values(parsed)) == 500
    shuffled = fp.pipe(texts, map(lambda row: {"x": int(row["x"])}), fp.shuffle(seed=0), on_error("skip", **ANY))
    assert len(values(shuffled)) == 501


def test_values_of_several_types_are_an_error_of_the_schema_as_ever():
    with pytest.raises(SchemaError, match="Make the values of a column one type"):
        list(fp.pipe(numbers(9), map(lambda row: {"x": row["x"] if row["x"] < 5 else "text"}), on_error("skip")))


def test_a_value_that_does_not_fit_the_declared_schema_is_skipped():
    dataset = fp.pipe(numbers(9), map(lambda row: {"x": row["x"] if row["x"] != 5 else "text"}, schema=NUMBERS), on_error("skip"))
    assert values(dataset) == [0, 1, 2, 3, 4, 6, 7, 8]
    assert "'text' does not fit" in ledger(dataset)[0].reason


def test_a_column_that_is_not_there_is_no_error_of_a_row():
    with pytest.raises(SchemaError, match="needs the column 'y'"):
        list(fp.pipe(numbers(9), fp.windows(2, column="y"), on_error("skip")))


@pytest.mark.parametrize("by_number", [True, False])
@pytest.mark.parametrize("count", [FORGIVEN, FORGIVEN + 1])
def test_few_failures_are_forgiven_and_more_than_the_rate_are_not(count, by_number):
    rows = numbers(5000) if by_number else from_chunks([pa.record_batch({"x": [x]}) for x in range(5000)])
    dataset = fp.pipe(rows, map(partial(strict, range(20, 20 + count))), on_error("skip"))
    if count == FORGIVEN:
        assert len(values(dataset)) == 5000 - count
        return
    with pytest.raises(DataError) as caught:
        list(dataset)
    assert re.search(
        r"^Too many rows fail: 11 of the first 31 \(35.48%\), above max_rate=0.001 of on_error. Most often: 1 times ", str(caught.value)
    )
    assert str(caught.value).endswith("first for source row 22. Fix the data or the stage, or increase max_rate.")


def test_the_rate_is_that_of_the_rows_so_far():
    evenly = fp.pipe(numbers(30_000), map(partial(strict, range(0, 30_000, 1500))), on_error("skip", max_rate=0.001))
    assert len(values(evenly)) == 29_980
    early = fp.pipe(numbers(30_000), map(partial(strict, range(0, 3000, 150))), on_error("skip", max_rate=0.001))
    with pytest.raises(DataError, match="11 of the first 1,501"):
        list(early)
    assert len(values(fp.pipe(numbers(100), map(partial(strict, range(100)), schema=NUMBERS), on_error("skip", max_rate=1)))) == 0


@pytest.mark.parametrize(("failures", "rows", "rate"), [(10, 500, 0.001), (1, 500, 0.001), (1, 3, 0.3), (11, 100, 0.1)])
def test_case_a19_the_rate_counts_at_the_end_of_the_epoch(failures: int, rows: int, rate: float):
    """A given rate is that of the whole epoch. The ten free failures only bridge the first rows."""
    failing = fp.pipe(numbers(rows), map(partial(strict, range(rows - failures, rows))))
    with pytest.raises(DataError, match=rf"^Too many rows fail: {failures} of the first {rows} .*above max_rate={rate} of on_error"):
        list(fp.pipe(failing, on_error("skip", max_rate=rate)))
    with pytest.raises(DataError, match=r"^Too many rows fail"):
        list(fp.pipe(failing, on_error("skip", max_rate=rate), fp.repeat(2), fp.prefetch(2, workers=2)))
    assert len(values(fp.pipe(failing, on_error("skip", max_rate=failures / rows)))) == rows - failures


def test_a_resumed_epoch_counts_the_failures_before_the_cursor():
    dataset = fp.pipe(numbers(500), map(partial(strict, {3})), on_error("skip", max_rate=0.001))
    cursor = next(fp.iterate(fp.pipe(dataset)))[1]
    with pytest.raises(DataError, match="1 of the first 500"):
        list(fp.iterate(dataset, fp.Cursor.from_bytes(cursor.to_bytes())))


def test_what_was_skipped_is_known_after_too_many_failed():
    dataset = fp.pipe(from_chunks([pa.record_batch({"x": [x]}) for x in range(100)]), map(partial(strict, range(3, 90))), on_error("skip"))
    cursors = []
    with pytest.raises(DataError, match="Too many"):
        cursors.extend(cursor for _, cursor in fp.iterate(dataset))
    assert skipped_rows(dataset, cursors[-1]) == ()  # the row after the last item is bad, and so are all until it stops


def test_errors_that_are_no_fault_of_a_row_are_raised():
    def greedy(row):
        raise MemoryError("too large")

    def interrupted(row):
        raise KeyboardInterrupt

    for function, kind in ((greedy, MemoryError), (interrupted, KeyboardInterrupt)):
        with pytest.raises(kind):
            list(fp.pipe(numbers(3), map(function, schema=NUMBERS), on_error("skip")))


@frozen(repr=False)
class _Fails(fp.RowWise):
    """Fails on these source rows."""

    bad: frozenset

    def apply(self, chunk):
        found = self.bad & set(chunk.column("__row__").to_pylist())
        if found:
            raise RuntimeError(f"rows {found}")
        return chunk


@frozen(repr=False)
class _Broken(fp.Source):
    """A source with random access of which some rows cannot be read."""

    bad: frozenset
    count: int = 12
    greedy: bool = False

    @property
    def indexable(self):
        return True

    def schema(self):
        return NUMBERS

    def length(self):
        return self.count

    def take(self, epoch, indices):
        found = self.bad & set(indices.tolist())
        if found:
            raise MemoryError if self.greedy else OSError(f"no file for {min(found)}")
        return pa.record_batch({"x": pa.array(indices)})

    def read(self, epoch, position):
        for first in range(position or 0, self.count, 5):
            stop = min(first + 5, self.count)
            yield self.take(epoch, np.arange(first, stop)), stop


@frozen(repr=False)
class _NoRows(_Broken):
    def take(self, epoch, indices):
        raise OSError("no rows")


@given(
    bad=st.frozensets(st.integers(0, 11)),
    where=st.sampled_from([fp.compose(), fp.shuffle(seed=3), fp.shard(1, 2), fp.compose(fp.load(), fp.shuffle(seed=1))]),
)
def test_rows_that_a_source_cannot_give_by_number_are_skipped(bad, where):
    dataset = fp.pipe(fp.Dataset(_Broken(bad)), where, on_error("skip", **ANY))
    expected = [x for x in values(fp.pipe(numbers(12), where)) if x not in bad]
    assert values(dataset) == expected
    assert_resumable(dataset)
    if expected and where is not fp.shard:
        found = ledger(dataset)
        assert {each.origin.row for each in found} == {x for x in values(fp.pipe(numbers(12), where)) if x in bad}
        assert all(each.reason == f"OSError: no file for {each.origin.row}" and "_broken" not in each.stage for each in found)


def test_rows_taken_by_number_resume_where_they_are():
    dataset = fp.pipe(fp.Dataset(_Broken(frozenset({6, 300}), 600)), on_error("skip"))  # 256 at a time
    whole = list(fp.iterate(dataset))
    assert [item["x"] for item, _ in whole] == [x for x in range(600) if x not in (6, 300)]
    for stop in (3, 100, 254, 255, 256, 400):
        assert list(fp.iterate(dataset, whole[stop][1])) == whole[stop + 1 :]


def test_an_error_on_no_rows_at_all_is_no_error_of_a_row():
    @frozen(repr=False)
    class Fussy(fp.RowWise):
        def apply(self, chunk):
            if not chunk.num_rows:
                raise LookupError("nothing to look at")
            return chunk

    with pytest.raises(LookupError):
        list(fp.pipe(numbers(3), filter(lambda row: row["x"] > 5), Fussy(), on_error("skip")))
    with pytest.raises(OSError, match="no rows"):
        on_error("skip")(fp.Dataset(_NoRows(frozenset()))).source.take(0, np.empty(0, np.int64))


def test_a_source_that_needs_too_much_memory_is_not_skipped():
    for dataset in (
        fp.Dataset(_Broken(frozenset({3}), greedy=True)),
        fp.pipe(fp.Dataset(_Broken(frozenset({3}), greedy=True)), fp.shuffle(seed=0)),
    ):
        with pytest.raises(MemoryError):
            list(fp.pipe(dataset, on_error("skip")))


def test_a_stage_that_makes_rows_anew_out_of_groups_is_refused():
    @frozen(repr=False)
    class Anew(fp.Stage):
        accepts = frozenset({"groups"})

        def step(self, state: object, chunk: RecordBatch) -> tuple[object, tuple[RecordBatch, ...]]:
            return state, (chunk.select(["x", "__row__", "__key__"]),)

    dataset = fp.pipe(numbers(4), fp.batch(2), Anew(), fp.unbatch(), map(dict), on_error("skip"))
    with pytest.raises(PipelineError, match=r"loses failed rows, because a stage before map\(function=dict\) creates new rows"):
        list(dataset)


def test_the_name_of_the_hidden_column_is_reserved():
    with pytest.raises(SchemaError, match="'__error__' is reserved for on_error; rename the column of from_table"):
        list(fp.pipe(fp.from_table({"__error__": [1]}), map(dict), on_error("skip")))


@pytest.mark.parametrize(
    "stage", [fp.shard(0, 2), lambda rows: fp.split([0.5, 0.5], seed=0)(rows)[0], take(5), skip(1), fp.prefetch(2), fp.repeat(1)]
)
def test_the_list_is_found_through_sources_that_hold_a_stream(stage):
    stream = from_chunks([pa.record_batch({"x": [x, x + 1]}) for x in range(0, 8, 2)])
    dataset = fp.pipe(stream, map(partial(strict, {2, 3}), schema=PAIRS), on_error("skip", **ANY), stage, fp.batch(2))
    assert [each.origin.row for each in ledger(dataset)] == [2, 3]


def test_raise_changes_nothing():
    dataset = fp.pipe(numbers(3), map(partial(strict, {1})))
    assert on_error("raise")(dataset) is dataset
    with pytest.raises(ValueError, match="1 is bad"):
        list(fp.pipe(dataset, on_error("raise")))


def test_it_is_a_value_that_prints_as_it_was_written():
    dataset = fp.pipe(numbers(3), map(dict), on_error("skip", max_rate=0.5), fp.batch(2))
    assert repr(dataset) == "pipe(from_table(3 rows), map(function=dict), on_error(policy='skip', max_rate=0.5), batch(size=2))"
    assert "skips rows on which earlier stages fail, up to 50.00% of the rows" in explain(dataset)
    assert repr(on_error("skip")) == "on_error('skip')"
    assert repr(on_error("skip", max_rate=0.001)) == "on_error('skip', max_rate=0.001)"
    assert_value(dataset)
    assert pickle.loads(pickle.dumps(dataset)) == dataset
    assert_told_apart(dataset, fp.pipe(numbers(3), map(dict), fp.batch(2)))
    assert fp.inspect.fingerprint(dataset) != fp.inspect.fingerprint(
        fp.pipe(numbers(3), map(dict), on_error("skip", max_rate=0.6), fp.batch(2))
    )
    assert length(dataset) is None
    assert OnError("skip").traits.longest_row(7) == 7
    assert dataset.stages[-1] == fp.batch(2)


def test_a_schema_is_no_part_of_how_a_guarded_stage_prints_once_it_is_inferred():
    dataset = fp.pipe(numbers(3), map(dict), on_error("skip"))
    assert [step.text for step in dataset.plan.steps] == ["map(function=dict)", "on_error(policy='skip')"]


def test_the_cache_of_a_guarded_pipeline_is_another_one(tmp_path):
    plain = fp.pipe(numbers(3), map(dict), fp.cache(tmp_path))
    assert len(values(plain)) == len(values(fp.pipe(numbers(3), map(dict), fp.cache(tmp_path), on_error("skip")))) == 3
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: on_error("ignore"), UnknownNameError, "No policy is named 'ignore'. Known: raise, skip."),
        (
            lambda: on_error("skip", max_rate=0),
            ArgumentError,
            "max_rate must be above 0 and at most 1, got 0. To allow no error, use on_error",
        ),
        (lambda: on_error("skip", max_rate=1.5), ArgumentError, "max_rate must be above 0 and at most 1, got 1.5"),
        (lambda: on_error("skip", max_rate="1%"), ArgumentTypeError, "max_rate must be int or float, got str: '1%'."),
        (lambda: fp.pipe(numbers(3), fp.batch(2), on_error("skip")), PipelineError, "takes examples, got groups from batch"),
        (
            lambda: fp.pipe(numbers(3), map(dict), on_error("skip"), map(dict), on_error("skip")),
            PipelineError,
            "a second on_error after pipe",
        ),
        (
            lambda: fp.pipe(fp.from_iterable(lambda: iter(())), on_error("skip")),
            PipelineError,
            "needs an earlier stage that can fail, got pipe.* Put on_error after map",
        ),
        (
            lambda: skipped_rows(numbers(3), next(fp.iterate(numbers(3)))[1]),
            PipelineError,
            "There is no list of skipped rows: the pipeline has no",
        ),
        (lambda: skipped_rows([1], None), ArgumentTypeError, "works on a dataset, got list"),
    ],
)
def test_messages(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


@pytest.mark.parametrize("after", [fp.load(), fp.shuffle(seed=0)])
def test_a_list_is_refused_behind_what_reads_everything_at_once(after):
    dataset = fp.pipe(numbers(3), map(dict), on_error("skip"), after)
    with pytest.raises(
        PipelineError, match=r'a later stage reads the whole dataset at once\. Put on_error\("skip"\) after load, cache and shuffle'
    ):
        ledger(dataset)


def test_the_list_of_another_pipeline_is_refused():
    cursor = next(fp.iterate(fp.pipe(numbers(3), map(dict), on_error("skip"))))[1]
    with pytest.raises(CursorMismatchError):
        skipped_rows(fp.pipe(numbers(4), map(dict), on_error("skip")), cursor)
