"""The law of pipes: piping is plain function application, and composing is associative."""

from collections.abc import Callable
from typing import Any

from mlxfp.core.pipelines import compose, pipe
from mlxfp.testing.comparing import assert_same

Function = Callable[[Any], Any]


def assert_pipes(value: object, *functions: Function, pipe: Callable[..., Any] = pipe, compose: Callable[..., Function] = compose) -> None:
    """Law: `pipe(x, f, g) == pipe(x, compose(f, g))`, wherever the sequence of functions is cut, and `compose` is associative.

    `pipe` and `compose` are ours unless others are given.

    >>> assert_pipes(" hi ", str.strip, str.upper, len)
    """
    assert_same(pipe(value), value, "pipe(x) is x")
    expected = value
    for function in functions:
        expected = function(expected)
    assert_same(pipe(value, *functions), expected, f"piping through {functions} is applying them in turn")
    whole = compose(*functions)
    assert_same(pipe(value, whole), expected, f"piping through {whole!r} is piping through its parts")
    for cut in range(len(functions) + 1):
        left, right = functions[:cut], functions[cut:]
        assert_same(pipe(value, *left, compose(*right)), expected, f"composing the functions from {cut} on changes nothing")
        assert compose(compose(*left), compose(*right)) == whole, f"compose is associative, but it matters to compose the first {cut} first"
