"""Classes come from plain values as they go into them; every mistake is said, with its place."""

import sys
from typing import Any, Literal

import pytest
from attrs import field, frozen
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.support import structuring
from mlxfp.support.errors import ArgumentError, ConfigError, MissingExtraError
from mlxfp.support.structuring import structure, unstructure


def _above_zero(value):
    return None if value > 0 else "above 0"


@frozen(kw_only=True)
class Part:
    name: str
    kind: Literal["first", "second"] = "first"
    titles: tuple[tuple[str, str], ...] = ()

    def __attrs_post_init__(self) -> None:
        if self.name == "last" and self.kind == "first":
            raise ArgumentError("The first is not the last.")


@frozen(kw_only=True)
class Whole:
    count: int = field(metadata={"checks": (_above_zero,)})
    share: float = field(default=0.5, metadata={"checks": (lambda _: None, _above_zero)})
    ready: bool = False
    limit: int | None = None
    main: Part | None = None
    parts: tuple[Part, ...] = ()
    words: tuple[str, ...] = ()
    arguments: tuple[tuple[str, Any], ...] = ()

    def __attrs_post_init__(self) -> None:
        if self.limit == 13:
            raise RuntimeError("our own bug")


TEXTS = st.text(max_size=5)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
PARTS = st.builds(
    Part,
    name=TEXTS.filter(lambda name: name != "last"),
    kind=st.sampled_from(["first", "second"]),
    titles=st.dictionaries(TEXTS, TEXTS, max_size=2).map(lambda titles: tuple(titles.items())),
)
WHOLES = st.builds(
    Whole,
    count=st.integers(1),
    share=st.floats(0.1, 9),
    ready=st.booleans(),
    limit=st.none() | st.integers(14),
    main=st.none() | PARTS,
    parts=st.lists(PARTS, max_size=2).map(tuple),
    words=st.lists(TEXTS, max_size=2).map(tuple),
    arguments=st.dictionaries(TEXTS, PLAIN | st.lists(PLAIN, max_size=2).map(tuple), max_size=2).map(lambda given: tuple(given.items())),
)


@given(whole=WHOLES)
def test_a_value_comes_back_from_plain_values(whole):
    plain = unstructure(whole)
    assert structure(plain, Whole) == whole
    assert structure({"one": plain}, dict[str, Whole]) == {"one": whole}
    assert all(type(value) in (bool, int, float, str, list, dict, type(None)) for value in plain.values())


def test_an_integer_is_a_number():
    made = structure({"count": 1, "share": 2}, Whole)
    assert (made.share, type(made.share)) == (2.0, float)


@pytest.mark.parametrize(
    ("values", "mistake"),
    [
        ({"count": True}, "count: expected an integer, got True"),
        ({"count": 3.0}, "count: expected an integer, got 3.0"),
        ({"count": "3"}, "count: expected an integer, got '3'"),
        ({"count": 0}, "count: expected above 0, got 0"),
        ({"count": 1, "share": -1.5}, "share: expected above 0, got -1.5"),
        ({"count": 1, "share": "a"}, "share: expected a number, got 'a'"),
        ({"count": 1, "ready": 1}, "ready: expected true or false, got 1"),
        ({"count": 1, "limit": "x"}, "limit: expected an integer, got 'x'"),
        ({}, "count: a value is required"),
        ({"count": 1, "mian": 2}, "mian: unknown key; did you mean 'main'?"),
        ({"count": 1, "zzz": 2}, "zzz: unknown key; known: count, share, ready, limit, main, parts, words, arguments"),
        ({"count": 1, "arguments": 3}, "arguments: expected names with values, got 3"),
        ({"count": 1, "arguments": {1: 2}}, "arguments: expected names with values, got {1: 2}"),
        (
            {"count": 1, "arguments": {"a": [{}]}},
            "arguments: expected numbers, texts, booleans, null, or lists of these, but 'a' has a value of another type, got {'a': [{}]}",
        ),
        ({"count": 1, "main": 3}, "main: expected names with values, got 3"),
        ({"count": 1, "main": "a"}, "main: expected names with values, got 'a'. Did you mean the value of main.name?"),
        ({"count": 1, "main": {}}, "main.name: a value is required"),
        ({"count": 1, "main": {"name": "last"}}, "main: The first is not the last."),
        ({"count": 1, "parts": "a"}, "parts: expected a list, got 'a'"),
        ({"count": 1, "parts": [{"name": "a"}, 3]}, "parts[1]: expected names with values, got 3"),
        (
            {"count": 1, "main": {"name": "a", "kind": "frist"}},
            "main.kind: expected 'first' or 'second' (did you mean 'first'?), got 'frist'",
        ),
        ({"count": 1, "parts": [{"name": "a", "kind": 3}]}, "parts[0].kind: expected 'first' or 'second', got 3"),
        ({"count": 1, "parts": [{"name": "a", "titles": ["b"]}]}, "parts[0].titles: expected names with values, got ['b']"),
        ({"count": 1, "parts": [{"name": "a", "titles": {"b": 1}}]}, "parts[0].titles.b: expected text, got 1"),
        ({"count": 1, "words": ["a", 1]}, "words[1]: expected text, got 1"),
        ([1], "the whole: expected names with values, got [1]"),
    ],
)
def test_every_mistake_names_its_place(values, mistake):
    with pytest.raises(ConfigError) as caught:
        structure(values, Whole)
    assert str(caught.value) == f"A mistake in the configuration:\n  {mistake}"


def test_mistakes_come_in_the_order_of_the_values_and_with_their_origins():
    values = {"b": {"words": [1, "a", 2]}, "a": {"share": "x", "count": -1, "odd": 3}}
    with pytest.raises(ConfigError) as caught:
        structure(values, dict[str, Whole], what="the files", origin=lambda place: "mine" if place[0] == "a" else "")
    assert str(caught.value).splitlines() == [
        "6 mistakes in the files:",
        "  b.words[0]: expected text, got 1",
        "  b.words[2]: expected text, got 2",
        "  b.count: a value is required",
        "  a.share (mine): expected a number, got 'x'",
        "  a.count (mine): expected above 0, got -1",
        "  a.odd (mine): unknown key; known: count, share, ready, limit, main, parts, words, arguments",
    ]


def test_an_error_that_is_no_mistake_of_the_values_is_not_hidden():
    with pytest.RaisesGroup(RuntimeError):
        structure({"count": 1, "limit": 13}, Whole)


def test_without_cattrs_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cattrs", None)
    structuring._converter.cache_clear()
    with pytest.raises(MissingExtraError, match=r"mlxfp\[config\]"):
        structure({"name": "x"}, Part)
    structuring._converter.cache_clear()
