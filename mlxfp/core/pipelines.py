"""`pipe` and `compose`: plain function application, left to right, with types that follow.

The overloads let mypy and pyright infer through a pipe, so that a misplaced stage is underlined in the editor.
"""

from collections.abc import Callable
from typing import Any, TypeVar, overload

import toolz
from attrs import field, frozen

from mlxfp.core.checks import check_callable
from mlxfp.core.nodes import brief

Stagelike = Callable[[Any], Any]

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
G = TypeVar("G")
H = TypeVar("H")
N = TypeVar("N")
J = TypeVar("J")
K = TypeVar("K")
L = TypeVar("L")
M = TypeVar("M")


@overload
def pipe(value: A, /) -> A: ...
@overload
def pipe(value: A, f1: Callable[[A], B], /) -> B: ...
@overload
def pipe(value: A, f1: Callable[[A], B], f2: Callable[[B], C], /) -> C: ...
@overload
def pipe(value: A, f1: Callable[[A], B], f2: Callable[[B], C], f3: Callable[[C], D], /) -> D: ...
@overload
def pipe(value: A, f1: Callable[[A], B], f2: Callable[[B], C], f3: Callable[[C], D], f4: Callable[[D], E], /) -> E: ...
@overload
def pipe(
    value: A,
    f1: Callable[[A], B],
    f2: Callable[[B], C],
    f3: Callable[[C], D],
    f4: Callable[[D], E],
    f5: Callable[[E], F],
    /,
) -> F: ...
@overload
def pipe(
    value: A,
    f1: Callable[[A], B],
    f2: Callable[[B], C],
    f3: Callable[[C], D],
    f4: Callable[[D], E],
    f5: Callable[[E], F],
    f6: Callable[[F], G],
    /,
) -> G: ...
@overload
def pipe(
    value: A,
    f1: Callable[[A], B],
    f2: Callable[[B], C],
    f3: Callable[[C], D],
    f4: Callable[[D], E],
    f5: Callable[[E], F],
    f6: Callable[[F], G],
    f7: Callable[[G], H],
    /,
) -> H: ...
@overload
def pipe(
    value: A,
    f1: Callable[[A], B],
    f2: Callable[[B], C],
    f3: Callable[[C], D],
    f4: Callable[[D], E],
    f5: Callable[[E], F],
    f6: Callable[[F], G],
    f7: Callable[[G], H],
    f8: Callable[[H], N],
    /,
) -> N: ...
@overload
def pipe(
    value: A,
    f1: Callable[[A], B],
    f2: Callable[[B], C],
    f3: Callable[[C], D],
    f4: Callable[[D], E],
    f5: Callable[[E], F],
    f6: Callable[[F], G],
    f7: Callable[[G], H],
    f8: Callable[[H], N],
    f9: Callable[[N], J],
    /,
) -> J: ...
@overload
def pipe(
    value: A,
    f1: Callable[[A], B],
    f2: Callable[[B], C],
    f3: Callable[[C], D],
    f4: Callable[[D], E],
    f5: Callable[[E], F],
    f6: Callable[[F], G],
    f7: Callable[[G], H],
    f8: Callable[[H], N],
    f9: Callable[[N], J],
    f10: Callable[[J], K],
    /,
) -> K: ...
@overload
def pipe(
    value: A,
    f1: Callable[[A], B],
    f2: Callable[[B], C],
    f3: Callable[[C], D],
    f4: Callable[[D], E],
    f5: Callable[[E], F],
    f6: Callable[[F], G],
    f7: Callable[[G], H],
    f8: Callable[[H], N],
    f9: Callable[[N], J],
    f10: Callable[[J], K],
    f11: Callable[[K], L],
    /,
) -> L: ...
@overload
def pipe(
    value: A,
    f1: Callable[[A], B],
    f2: Callable[[B], C],
    f3: Callable[[C], D],
    f4: Callable[[D], E],
    f5: Callable[[E], F],
    f6: Callable[[F], G],
    f7: Callable[[G], H],
    f8: Callable[[H], N],
    f9: Callable[[N], J],
    f10: Callable[[J], K],
    f11: Callable[[K], L],
    f12: Callable[[L], M],
    /,
) -> M: ...
@overload
def pipe(
    value: Any,
    f1: Stagelike,
    f2: Stagelike,
    f3: Stagelike,
    f4: Stagelike,
    f5: Stagelike,
    f6: Stagelike,
    f7: Stagelike,
    f8: Stagelike,
    f9: Stagelike,
    f10: Stagelike,
    f11: Stagelike,
    f12: Stagelike,
    f13: Stagelike,
    /,
    *functions: Stagelike,
) -> Any: ...
def pipe(value: Any, /, *functions: Stagelike) -> Any:
    """Pass a value through functions, left to right: `pipe(x, f, g)` is `g(f(x))`.

    The value is a dataset and the functions are stages, or the events of a run and observers, or anything that fits. A stage called on
    a dataset gives the longer dataset and reads nothing, so a pipeline is built at once and runs when it is iterated over. Raises
    `PipelineError` for a stage at a place where it cannot be, such as `shuffle` after `batch`, and `ArgumentTypeError` for what cannot be
    called; a column that is not there is a `SchemaError` when the first item is asked for.

    >>> from mlxfp.data.lengths.batching import batch
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> pipe(from_examples([{"x": 1}, {"x": 2}, {"x": 3}]), batch(2))
    pipe(from_examples(3 rows), batch(size=2))
    >>> pipe(3, str, len)
    1

    See also: `compose` to name a row of stages and use it again; `iterate` for the items with their cursors.
    """
    for place, function in enumerate(functions, 1):
        check_callable(**{f"argument {place + 1} of pipe": function})
    return toolz.pipe(value, *functions)


@overload
def compose(f1: Callable[[A], B], /) -> Callable[[A], B]: ...
@overload
def compose(f1: Callable[[A], B], f2: Callable[[B], C], /) -> Callable[[A], C]: ...
@overload
def compose(f1: Callable[[A], B], f2: Callable[[B], C], f3: Callable[[C], D], /) -> Callable[[A], D]: ...
@overload
def compose(f1: Callable[[A], B], f2: Callable[[B], C], f3: Callable[[C], D], f4: Callable[[D], E], /) -> Callable[[A], E]: ...
@overload
def compose(
    f1: Callable[[A], B],
    f2: Callable[[B], C],
    f3: Callable[[C], D],
    f4: Callable[[D], E],
    f5: Callable[[E], F],
    /,
) -> Callable[[A], F]: ...
@overload
def compose(
    f1: Callable[[A], B],
    f2: Callable[[B], C],
    f3: Callable[[C], D],
    f4: Callable[[D], E],
    f5: Callable[[E], F],
    f6: Callable[[F], G],
    /,
) -> Callable[[A], G]: ...
@overload
def compose(
    f1: Callable[[A], B],
    f2: Callable[[B], C],
    f3: Callable[[C], D],
    f4: Callable[[D], E],
    f5: Callable[[E], F],
    f6: Callable[[F], G],
    f7: Callable[[G], H],
    /,
) -> Callable[[A], H]: ...
@overload
def compose(
    f1: Callable[[A], B],
    f2: Callable[[B], C],
    f3: Callable[[C], D],
    f4: Callable[[D], E],
    f5: Callable[[E], F],
    f6: Callable[[F], G],
    f7: Callable[[G], H],
    f8: Callable[[H], N],
    /,
) -> Callable[[A], N]: ...
@overload
def compose() -> Stagelike: ...
@overload
def compose(
    f1: Stagelike,
    f2: Stagelike,
    f3: Stagelike,
    f4: Stagelike,
    f5: Stagelike,
    f6: Stagelike,
    f7: Stagelike,
    f8: Stagelike,
    f9: Stagelike,
    /,
    *functions: Stagelike,
) -> Stagelike: ...
def compose(*functions: Stagelike) -> Stagelike:
    """Name a row of stages as one value: `compose(f, g)(x)` is `pipe(x, f, g)`. Composing is associative.

    So training and validation share a recipe. Raises `ArgumentTypeError` for what cannot be called.

    >>> shout = compose(str.strip, str.upper)
    >>> shout(" hi ")
    'HI'
    >>> compose(compose(str.strip), str.upper) == shout
    True
    """
    for place, function in enumerate(functions, 1):
        check_callable(**{f"argument {place} of compose": function})
    return _Composed(functions)


def _flat(functions: tuple[Stagelike, ...]) -> tuple[Stagelike, ...]:
    return tuple(inner for f in functions for inner in (f.functions if isinstance(f, _Composed) else (f,)))


@frozen(repr=False)
class _Composed:
    functions: tuple[Stagelike, ...] = field(converter=_flat)

    def __call__(self, value: Any) -> Any:
        return toolz.pipe(value, *self.functions)

    def __repr__(self) -> str:
        return f"compose({', '.join(map(brief, self.functions))})"
