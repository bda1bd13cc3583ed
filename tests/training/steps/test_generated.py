"""Generated code does what walking a tree does."""

from collections import namedtuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.core.trees import flatten
from mlxfp.training.steps.generated import generated

KEYS = st.one_of(st.text(max_size=3), st.integers(-2, 2), st.sampled_from(["a.b", "'", '"', "\\", "\n", "{x}", "leaves[0]"]))
TREES = st.recursive(
    st.one_of(st.integers(), st.none()),
    lambda inner: st.one_of(
        st.dictionaries(KEYS, inner, max_size=3), st.lists(inner, max_size=3), st.tuples(inner), st.tuples(inner, inner)
    ),
)
Point = namedtuple("Point", "x y")  # noqa: PYI024  # a typed one is no different here


def deep(levels):
    tree = 1
    for _ in range(levels):
        tree = [tree]
    return tree


@given(TREES)
def test_any_tree_is_taken_apart_and_built_as_by_walking_it(tree):
    assert_equivalent(tree)


@pytest.mark.parametrize("tree", [Point(1, [2]), {"a": Point({}, ())}, deep(300), [], 7])
def test_trees_that_do_not_print_as_an_expression_are_walked(tree):
    assert_equivalent(tree)


def assert_equivalent(tree):
    structure, leaves = flatten(tree)
    take, build = generated(structure)
    assert take(tree) == leaves
    assert flatten(build(leaves)) == (structure, leaves)
