"""Trees come apart and go together again exactly."""

from collections import OrderedDict
from typing import Any, Generic, NamedTuple, TypeVar

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx.utils import tree_flatten, tree_unflatten

from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.support.trees import difference, flatten, paths, tree_map, unflatten

T = TypeVar("T")


class Pair(NamedTuple):
    left: Any
    right: Any


class Box(NamedTuple, Generic[T]):
    inside: T


class Grown(Pair):
    """A subclass of a named tuple may hold more than its fields."""


@attrs.frozen
class Frozen:
    value: Any
    _hidden: Any = None


@attrs.define(slots=False)
class Strict:
    size: int = attrs.field(validator=attrs.validators.instance_of(int), converter=int)
    doubled: int = attrs.field(init=False)

    def __attrs_post_init__(self):
        self.doubled = self.size * 2


class Extended(Frozen):
    """A plain subclass of an attrs class, with a __dict__ of its own."""


class Leaf:
    pass


LEAVES = st.one_of(st.integers(), st.floats(), st.booleans(), st.text(max_size=3), st.binary(max_size=3), st.builds(Leaf))
KEYS = st.one_of(st.sampled_from(["0", "1", "a.b", "", "a", "[0]", "'"]), st.integers(-1, 2), st.text(max_size=4))


def nodes(children):
    return st.one_of(
        st.dictionaries(KEYS, children, max_size=4),
        st.lists(children, max_size=4),
        st.lists(children, max_size=4).map(tuple),
        st.builds(Pair, children, children),
        st.builds(Box, children),
        st.builds(Frozen, children, children),
    )


TREES = st.recursive(st.one_of(LEAVES, st.none()), nodes, max_leaves=20)


def assert_round_trip(tree, take_apart=flatten, put_together=unflatten):
    """Law: a tree that is taken apart and put together is the same, types, order of keys and leaves included."""
    again = put_together(*take_apart(tree))
    assert identical(tree, again), f"{tree!r} came back as {again!r}"


def identical(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(identical, a.values(), b.values()))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(identical, a, b))
    if attrs.has(type(a)):
        return all(identical(getattr(a, field.name), getattr(b, field.name)) for field in attrs.fields(type(a)))
    return a is b


@given(TREES)
def test_a_tree_comes_back_exactly(tree):
    assert_round_trip(tree)


@pytest.mark.parametrize("tree", [{"a": (1, 2)}, {"a": {}, "b": 1}, {"0": 1, "1": 2}, {"a.b": 1}])
def test_the_law_catches_how_mlx_loses_structure(tree):
    with pytest.raises(AssertionError, match="came back as"):
        assert_round_trip(tree, lambda tree: (tree_flatten(tree),), tree_unflatten)


@given(TREES, TREES)
def test_structures_are_equal_exactly_if_the_trees_differ_in_leaves_only(a, b):
    (left, mine), (right, theirs) = flatten(a), flatten(b)
    exchanged = len(mine) == len(theirs) and identical(unflatten(left, theirs), b)
    assert (left == right) == exchanged
    assert left != right or hash(left) == hash(right)


@given(TREES)
def test_every_leaf_has_a_name_of_its_own(tree):
    structure, leaves = flatten(tree)
    names = paths(structure)
    assert len(set(names)) == len(names) == len(leaves)


@given(TREES, TREES)
def test_a_difference_is_said_exactly_if_there_is_one(a, b):
    (left, _), (right, _) = flatten(a), flatten(b)
    assert (difference(left, right) == "") == (left == right)


def test_names_read_like_python():
    tree = {"params": [Frozen(1, Pair(2, 3))], "a.b": {"0": 4, 0: (5,)}}
    names = "params[0].value params[0]._hidden.left params[0]._hidden.right ['a.b']['0'] ['a.b'][0][0]"
    assert paths(flatten(tree)[0]) == tuple(names.split())


def test_attrs_values_are_rebuilt_without_validators():
    structure, leaves = flatten(Strict(3))
    rebuilt = unflatten(structure, ["any", "thing"])
    assert leaves == [3, 6]
    assert (rebuilt.size, rebuilt.doubled) == ("any", "thing")


@pytest.mark.parametrize("leaf", [OrderedDict(a=1), Grown(1, 2), Extended(1), {1, 2}, Leaf(), "text"])
def test_what_could_not_be_rebuilt_is_a_leaf(leaf):
    assert flatten([leaf])[1] == [leaf]


@given(TREES)
def test_mapping_the_identity_changes_nothing(tree):
    assert identical(tree_map(lambda leaf: leaf, tree), tree)


def test_mapping_over_two_trees_pairs_their_leaves():
    assert tree_map(lambda a, b: a - b, Frozen(5, {"x": 7}), Frozen(1, {"x": 2})) == Frozen(4, {"x": 5})


@pytest.mark.parametrize("key", [True, 1.0, (1,), None, b"a"])
def test_keys_that_equal_others_of_another_type_are_refused(key):
    with pytest.raises(ArgumentTypeError, match="keys of a dict in a tree must be str or int"):
        flatten({"fine": {key: 1}})


def test_too_few_leaves_are_an_error():
    with pytest.raises(ArgumentError, match=r"The tree has 2 leaves, got 1: \[\*, \*\]"):
        unflatten(flatten([1, 2])[0], [1])


def test_mapping_trees_of_two_structures_says_what_differs():
    with pytest.raises(ArgumentError, match=r"the same structure\. Missing: b\. Unexpected: c\."):
        tree_map(max, {"a": 1, "b": 2}, {"a": 1, "c": 2})
    with pytest.raises(ArgumentError, match="Same leaves, but other containers"):
        tree_map(max, [1], (1,))
