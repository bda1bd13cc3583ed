import pytest
from hypothesis import given

import mlxfp as fp
from mlxfp.support.errors import ArgumentTypeError
from mlxfp.testing.strategies import pipelines

ROWS = fp.from_table({"x": [1, 2, 3]})
OTHERS = fp.from_table({"x": [1, 2, 4]})


def doubled(factor):
    return lambda row: {"x": row["x"] * factor}


@given(a=pipelines(), b=pipelines())
def test_equal_pipelines_have_no_difference_and_others_have_one(a, b):
    assert fp.inspect.diff(a, a) == ""
    assert (fp.inspect.diff(a, b) == "") == (a == b)


@given(a=pipelines(), b=pipelines())
def test_each_part_of_both_is_named_in_its_order(a, b):
    lines = fp.inspect.diff(a, b).splitlines()
    for dataset, mark in ((a, "-"), (b, "+")):
        parts = [repr(part).partition("(")[0] for part in fp.parts.flat_parts(dataset)]
        seen = [line[2:].partition("(")[0] for line in lines if line[0] in f" !{mark}"]
        assert not lines or seen == parts


def test_parts_that_were_added_removed_and_changed_are_marked():
    a = fp.pipe(ROWS, fp.map(dict), fp.shuffle(seed=0), fp.batch(2))
    b = fp.pipe(ROWS, fp.map(dict), fp.filter(bool), fp.shuffle(seed=1), fp.batch(2), fp.prefetch(2))
    assert fp.inspect.diff(a, b).splitlines() == [
        "  from_table(3 rows)",
        "  map(function=dict)",
        "- shuffle(seed=0)",
        "+ filter(predicate=bool)",
        "+ shuffle(seed=1)",
        "  batch(size=2)",
        "+ prefetch(depth=2)",
    ]
    assert fp.inspect.diff(fp.pipe(ROWS, fp.prefetch(1)), fp.pipe(ROWS, fp.prefetch(2))) == ""  # how it runs is no part of what it is


def test_parts_that_print_alike_say_in_what_they_differ():
    a, b = fp.pipe(ROWS, fp.map(doubled(2)), fp.batch(2)), fp.pipe(OTHERS, fp.map(doubled(3)), fp.batch(2))
    assert fp.inspect.diff(a, b).splitlines() == [
        "! from_table(3 rows): another table",
        "! map(function=doubled.<locals>.<lambda>): another function",
        "  batch(size=2)",
    ]


def test_joined_datasets_are_compared_one_by_one():
    lines = fp.inspect.diff(
        fp.concat([fp.pipe(ROWS, fp.batch(1)), ROWS and fp.pipe(ROWS, fp.batch(2))]),
        fp.concat([fp.pipe(OTHERS, fp.batch(1)), fp.pipe(ROWS, fp.batch(2))]),
    ).splitlines()
    text = repr(fp.concat([fp.pipe(ROWS, fp.batch(1)), fp.pipe(ROWS, fp.batch(2))]).source)
    assert lines == [f"! {text}: another datasets", "  0 | ! from_table(3 rows): another table", "  0 |   batch(size=1)"]
    longer = fp.inspect.diff(fp.mix([ROWS] * 9, [1] * 9), fp.mix([ROWS] * 9, [1] * 8 + [2]))
    assert longer.startswith("- mix(")


@pytest.mark.parametrize("wrong", [(ROWS, None), ([1], ROWS)])
def test_other_things_are_refused(wrong):
    with pytest.raises(ArgumentTypeError, match="works on a dataset"):
        fp.inspect.diff(*wrong)
