import pytest
from hypothesis import given

from mlxfp.core.nodes import flat_parts
from mlxfp.core.pipelines import pipe
from mlxfp.data.inspection.differences import diff
from mlxfp.data.lengths.batching import batch
from mlxfp.data.rows.map_filter import filter, map
from mlxfp.data.rows.mixing import concat, mix
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.running.prefetching import prefetch
from mlxfp.data.sources.in_memory import from_table
from mlxfp.support.errors import ArgumentTypeError
from mlxfp.testing.strategies import pipelines

ROWS = from_table({"x": [1, 2, 3]})
OTHERS = from_table({"x": [1, 2, 4]})


def doubled(factor):
    return lambda row: {"x": row["x"] * factor}


@given(a=pipelines(), b=pipelines())
def test_equal_pipelines_have_no_difference_and_others_have_one(a, b):
    assert diff(a, a) == ""
    assert (diff(a, b) == "") == (a == b)


@given(a=pipelines(), b=pipelines())
def test_each_part_of_both_is_named_in_its_order(a, b):
    lines = diff(a, b).splitlines()
    for dataset, mark in ((a, "-"), (b, "+")):
        parts = [repr(part).partition("(")[0] for part in flat_parts(dataset)]
        seen = [line[2:].partition("(")[0] for line in lines if line[0] in f" !{mark}"]
        assert not lines or seen == parts


def test_parts_that_were_added_removed_and_changed_are_marked():
    a = pipe(ROWS, map(dict), shuffle(seed=0), batch(2))
    b = pipe(ROWS, map(dict), filter(bool), shuffle(seed=1), batch(2), prefetch(2))
    assert diff(a, b).splitlines() == [
        "  from_table(3 rows)",
        "  map(function=dict)",
        "- shuffle(seed=0)",
        "+ filter(predicate=bool)",
        "+ shuffle(seed=1)",
        "  batch(size=2)",
        "+ prefetch(depth=2)",
    ]
    assert diff(pipe(ROWS, prefetch(1)), pipe(ROWS, prefetch(2))) == ""  # how it runs is no part of what it is


def test_parts_that_print_alike_say_in_what_they_differ():
    a, b = pipe(ROWS, map(doubled(2)), batch(2)), pipe(OTHERS, map(doubled(3)), batch(2))
    assert diff(a, b).splitlines() == [
        "! from_table(3 rows): another table",
        "! map(function=doubled.<locals>.<lambda>): another function",
        "  batch(size=2)",
    ]


def test_joined_datasets_are_compared_one_by_one():
    lines = diff(
        concat([pipe(ROWS, batch(1)), ROWS and pipe(ROWS, batch(2))]), concat([pipe(OTHERS, batch(1)), pipe(ROWS, batch(2))])
    ).splitlines()
    text = repr(concat([pipe(ROWS, batch(1)), pipe(ROWS, batch(2))]).source)
    assert lines == [f"! {text}: another datasets", "  0 | ! from_table(3 rows): another table", "  0 |   batch(size=1)"]
    longer = diff(mix([ROWS] * 9, [1] * 9), mix([ROWS] * 9, [1] * 8 + [2]))
    assert longer.startswith("- mix(")


@pytest.mark.parametrize("wrong", [(ROWS, None), ([1], ROWS)])
def test_other_things_are_refused(wrong):
    with pytest.raises(ArgumentTypeError, match="works on a dataset"):
        diff(*wrong)
