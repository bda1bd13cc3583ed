"""`pipe` and `compose`: function application from left to right.

The overloads let mypy and pyright infer the type of a pipeline, so an editor underlines a misplaced stage. Overloads cover up to
eight functions. In longer pipes, the first eight functions are still checked and the result is `Any`. Use `compose` to split a
long pipe.
"""

from collections.abc import Callable
from typing import Any, TypeVar, overload

import toolz
from attrs import field, frozen

from mlxfp.core.nodes import Itemless, brief
from mlxfp.support.checks import check_callable
from mlxfp.support.errors import ArgumentTypeError

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
G = TypeVar("G")
H = TypeVar("H")
J = TypeVar("J")
Fn = Callable[[A], B]
Stagelike = Callable[[Any], Any]


@overload
def pipe(value: A, /) -> A: ...
@overload
def pipe(value: A, f: Fn[A, B], /) -> B: ...
@overload
def pipe(value: A, f: Fn[A, B], g: Fn[B, C], /) -> C: ...
@overload
def pipe(value: A, f: Fn[A, B], g: Fn[B, C], h: Fn[C, D], /) -> D: ...
@overload
def pipe(value: A, f: Fn[A, B], g: Fn[B, C], h: Fn[C, D], i: Fn[D, E], /) -> E: ...
@overload
def pipe(value: A, f: Fn[A, B], g: Fn[B, C], h: Fn[C, D], i: Fn[D, E], j: Fn[E, F], /) -> F: ...
@overload
def pipe(value: A, f: Fn[A, B], g: Fn[B, C], h: Fn[C, D], i: Fn[D, E], j: Fn[E, F], k: Fn[F, G], /) -> G: ...
@overload
def pipe(value: A, f: Fn[A, B], g: Fn[B, C], h: Fn[C, D], i: Fn[D, E], j: Fn[E, F], k: Fn[F, G], m: Fn[G, H], /) -> H: ...
@overload
def pipe(value: A, f: Fn[A, B], g: Fn[B, C], h: Fn[C, D], i: Fn[D, E], j: Fn[E, F], k: Fn[F, G], m: Fn[G, H], n: Fn[H, J], /) -> J: ...
@overload
def pipe(
    value: A,
    f: Fn[A, B],
    g: Fn[B, C],
    h: Fn[C, D],
    i: Fn[D, E],
    j: Fn[E, F],
    k: Fn[F, G],
    m: Fn[G, H],
    n: Fn[H, J],
    o: Stagelike,
    /,
    *functions: Stagelike,
) -> Any: ...
def pipe(value: Any, /, *functions: Stagelike) -> Any:
    """Pass a value through functions, left to right: `pipe(x, f, g)` is `g(f(x))`.

    Usually the value is a dataset and the functions are stages, or the value is the events of a run and the functions are observers.
    Other values and functions work too. A stage adds a step to the pipeline of a dataset and reads no rows: rows are read during
    iteration. Raises `PipelineError` for a misplaced stage, such as `shuffle` after `batch`. Raises `ArgumentTypeError` for an argument
    that is not a function, and for a list of stages as the only argument. A missing column raises `SchemaError` when the first item is
    requested.

    >>> import mlxfp as fp
    >>> fp.pipe(fp.from_examples([{"x": 1}, {"x": 2}, {"x": 3}]), fp.batch(2))
    pipe(from_examples(3 rows), batch(size=2))
    >>> fp.pipe(3, str, len)
    1

    See also: `compose` to make one value of several stages; `iterate` for the items with their cursors.
    """
    if not functions and isinstance(value, list | tuple) and len(value) > 1 and all(callable(part) for part in value[1:]):
        raise ArgumentTypeError(f"pipe got one {type(value).__name__} of {len(value)} parts. Pass the parts as arguments: fp.pipe(*parts).")
    for index, function in enumerate(functions, 1):
        if not callable(function) and (hooks := [name for name in dir(function) if name.startswith("on_")]):
            raise ArgumentTypeError(
                f"argument {index + 1} of pipe must be a function, got an object of the class {type(function).__name__} with the "
                f"callback methods {', '.join(hooks[:3])}. pipe calls no callbacks: write an observer with fp.observers.on_event."
            )
        check_callable(**{f"argument {index + 1} of pipe": function})
    return toolz.pipe(value, *functions)


@overload
def compose() -> Stagelike: ...
@overload
def compose(f: Fn[A, B], /) -> Fn[A, B]: ...
@overload
def compose(f: Fn[A, B], g: Fn[B, C], /) -> Fn[A, C]: ...
@overload
def compose(f: Fn[A, B], g: Fn[B, C], h: Fn[C, D], /) -> Fn[A, D]: ...
@overload
def compose(f: Fn[A, B], g: Fn[B, C], h: Fn[C, D], i: Fn[D, E], /) -> Fn[A, E]: ...
@overload
def compose(f: Fn[A, B], g: Fn[B, C], h: Fn[C, D], i: Fn[D, E], j: Fn[E, F], /) -> Fn[A, F]: ...
@overload
def compose(f: Fn[A, B], g: Fn[B, C], h: Fn[C, D], i: Fn[D, E], j: Fn[E, F], k: Fn[F, G], /) -> Fn[A, G]: ...
@overload
def compose(f: Fn[A, B], g: Fn[B, C], h: Fn[C, D], i: Fn[D, E], j: Fn[E, F], k: Fn[F, G], m: Fn[G, H], /) -> Fn[A, H]: ...
@overload
def compose(f: Fn[A, B], g: Fn[B, C], h: Fn[C, D], i: Fn[D, E], j: Fn[E, F], k: Fn[F, G], m: Fn[G, H], n: Fn[H, J], /) -> Fn[A, J]: ...
@overload
def compose(
    f: Fn[A, B],
    g: Fn[B, C],
    h: Fn[C, D],
    i: Fn[D, E],
    j: Fn[E, F],
    k: Fn[F, G],
    m: Fn[G, H],
    n: Fn[H, J],
    o: Stagelike,
    /,
    *functions: Stagelike,
) -> Fn[A, Any]: ...
def compose(*functions: Stagelike) -> Stagelike:
    """Combine functions into a single function: `compose(f, g)(x)` is `pipe(x, f, g)`.

    Use `compose` to share a sequence of stages between training and validation. The result can be printed, compared and pickled.
    Composition is associative. Raises `ArgumentTypeError` for an argument that is not a function.

    >>> shout = compose(str.strip, str.upper)
    >>> shout(" hi ")
    'HI'
    >>> compose(compose(str.strip), str.upper) == shout
    True
    """
    for index, function in enumerate(functions, 1):
        check_callable(**{f"argument {index} of compose": function})
    return _Composed(functions)


def _flat(functions: tuple[Stagelike, ...]) -> tuple[Stagelike, ...]:
    return tuple(inner for f in functions for inner in (f.functions if isinstance(f, _Composed) else (f,)))


@frozen(repr=False)
class _Composed(Itemless):
    functions: tuple[Stagelike, ...] = field(converter=_flat)

    def __call__(self, value: Any) -> Any:
        return toolz.pipe(value, *self.functions)

    def __repr__(self) -> str:
        return f"compose({', '.join(map(brief, self.functions))})"
