"""Registries are immutable mappings with names in order, and say what they know."""

import pickle

import pytest
from attrs import evolve
from attrs.exceptions import FrozenInstanceError
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.core.identity import fingerprint
from mlxfp.support.errors import ArgumentTypeError, UnknownNameError
from mlxfp.support.registries import Registry

entries = st.dictionaries(st.text(max_size=4), st.integers(), max_size=5)


@given(entries, entries)
def test_a_registry_is_the_dict_it_was_made_of_in_the_order_of_names(first: dict[str, int], second: dict[str, int]):
    registry = Registry("number", first)
    assert dict(registry) == first
    assert list(registry) == sorted(first)
    assert len(registry) == len(first)
    assert dict(registry | second) == first | second
    assert dict(registry | Registry("number", second)) == first | second
    assert dict(registry) == first


@given(entries)
def test_registries_of_the_same_entries_are_one_value(given_entries: dict[str, int]):
    registry = Registry("number", given_entries)
    turned = Registry("number", dict(reversed(given_entries.items())))
    assert registry == turned == registry | {} == pickle.loads(pickle.dumps(registry)) == evolve(registry, kind="number")
    assert hash(registry) == hash(turned)
    assert fingerprint(registry) == fingerprint(turned)


def test_an_unknown_name_suggests_the_nearest():
    registry = Registry("collator", {"causal": 1, "masked": 2})
    with pytest.raises(UnknownNameError) as error:
        registry["casual"]
    assert str(error.value) == "No collator is named 'casual'. Did you mean 'causal'? Known: causal, masked."
    with pytest.raises(KeyError, match=r"No collator is named '7'\. Known: causal, masked\."):
        registry[7]
    with pytest.raises(KeyError, match=r"Known: none\."):
        Registry("collator", {})["any"]


def test_membership_and_get_do_not_raise():
    registry = Registry("shape", {"round": None})
    assert "round" in registry
    assert "square" not in registry
    assert registry.get("square", 4) == 4
    assert registry.get("round", 4) is None


def test_a_registry_cannot_be_changed():
    registry = Registry("shape", {"round": 0})
    with pytest.raises(TypeError):
        registry["square"] = 4
    with pytest.raises(FrozenInstanceError):
        registry.kind = "number"
    entry = {"square": 4}
    larger = registry | entry
    entry["square"] = 5
    assert larger["square"] == 4
    assert "square" not in registry


def test_a_registry_prints_its_names():
    assert repr(Registry("shape", {"b": 1, "a": 2})) == "Registry of 2 shapes: a, b"
    assert repr(Registry("shape", {})) == "Registry of 0 shapes: none"


def test_entries_that_are_no_mapping_of_names_are_refused():
    with pytest.raises(ArgumentTypeError, match="entries must be Mapping, got list"):
        Registry("shape", [("a", 1)])
    with pytest.raises(ArgumentTypeError, match="others must be Mapping, got int"):
        Registry("shape", {}) | 3
    with pytest.raises(ArgumentTypeError, match="the name of entry 3 must be a string"):
        Registry("shape", {3: 1})
