"""The law of pipes holds for ours, and catches a pipe and a compose that are wrong."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.testing.laws import assert_pipes


@given(st.integers() | st.text() | st.none(), st.lists(st.sampled_from([str, repr, ascii]), max_size=14))
def test_pipe_and_compose_are_plain_application(value: object, functions: list[Callable[[Any], Any]]):
    assert_pipes(value, *functions)


def _backwards(value: Any, *functions: Callable[[Any], Any]) -> Any:
    return reduce(lambda made, function: function(made), reversed(functions), value)


def _not_empty(value: Any, *functions: Callable[[Any], Any]) -> Any:
    return functions[0](value) if functions else None


def _nested(*functions: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Compose, but make a new function each time, which equals no other."""
    return lambda value: reduce(lambda made, function: function(made), functions, value)


def _first_two(*functions: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return _nested(*functions[:2])


@pytest.mark.parametrize("broken", [{"pipe": _backwards}, {"pipe": _not_empty}, {"compose": _nested}, {"compose": _first_two}])
def test_the_law_catches(broken: dict[str, Any]):
    with pytest.raises(AssertionError):
        assert_pipes(" hi ", str.strip, str.title, repr, **broken)
