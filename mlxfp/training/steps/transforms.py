"""`jit` compiles functions of trees; `functional` turns a module into parameters and a pure function.

`mx.compile` alone has traps: it refuses attrs values as arguments and lets tracers leak out through them as results, and its cache does
not know where a container ends, so `f([x], y)` after `f([x, y])` silently runs the wrong trace. Here there is one compiled function
for each structure and each set of Python values, and only flat arrays pass through it.
"""

import re
import warnings
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from functools import partial, update_wrapper
from itertools import count
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar

import mlx.core as mx
from attrs import define, field, frozen
from mlx import nn

from mlxfp.models.bounds import Bounds, holds, tracing
from mlxfp.models.layers import Dropout, derived_key
from mlxfp.support.checks import check_callable, check_positive, check_types
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.support.trees import TreeDef, difference, flatten, paths, tree_map, unflatten
from mlxfp.training.steps.drawing import drawing_from, refusing_draws
from mlxfp.training.steps.modules import (
    copy_module,
    get_arrays,
    put_arrays,
    resting_parts,
    split_arrays,
)
from mlxfp.training.steps.outside import Outside

P = ParamSpec("P")
R = TypeVar("R")

_NOTHING = mx.array(0.0)
_STATIC = (str, bytes, int, float, complex, mx.Dtype)


def functional(model: nn.Module) -> "Functional":
    """Turn a module into a value: its parameters, its buffers, and a pure way to apply it.

    `params` are the floating-point arrays that train, `buffers` all others: frozen ones, running statistics, integers. The module is
    copied; it may be changed, trained or dropped afterwards. `nn.Dropout` and `nn.Embedding` in it, also in foreign models, become those of
    `models.layers`, which draw from a key and refuse ids that they have no row for.

    >>> model = functional(nn.Linear(2, 1))
    >>> zeros = {"weight": mx.zeros((1, 2)), "bias": mx.array([3.0])}
    >>> output, buffers = model.apply(lambda linear, x: linear(x), zeros, {}, mx.ones((4, 2)))
    >>> output.squeeze().tolist()
    [3.0, 3.0, 3.0, 3.0]
    """
    check_types(nn.Module, model=model)
    params, buffers = split_arrays(model)
    skeleton = copy_module(model)
    for tree in (params, buffers):
        put_arrays(skeleton, tree_map(_nothing, tree))  # the skeleton must not keep the weights alive
    return Functional(params, buffers, skeleton)


@frozen(eq=False)
class Functional:
    """A module as a value; made by `functional`. `params` and `buffers` are trees of dicts and lists, as `Module.update` takes them."""

    params: Any = field(repr=False)
    buffers: Any = field(repr=False)
    _skeleton: nn.Module

    @property
    def kind(self) -> type[nn.Module]:
        """Class of the module."""
        return type(self._skeleton)

    def bind(self, params: Any, buffers: Any, *, key: mx.array | None = None) -> nn.Module:
        """Make a module that holds these arrays; with a key, uint32[2], in training mode, and its dropout draws from the key.

        Frozen parts of a module in training mode that were put into evaluation mode stay there: `body.freeze()` and `body.eval()`.

        Every call makes a new module, so the tracers that a trace leaves in it are dropped with it, also after an exception. Raises
        `ArgumentError` if the trees are not those of this module.
        """
        for name, expected, given in (("params", self.params, params), ("buffers", self.buffers, buffers)):
            if differs := difference(flatten(expected)[0], flatten(given)[0]):
                raise ArgumentError(f"The {name} are not those of this {type(self._skeleton).__name__}. {differs}")
        model = copy_module(self._skeleton)
        put_arrays(model, params)
        put_arrays(model, buffers)
        resting = resting_parts(model)
        model.train(key is not None)
        for part in resting:
            part.eval()
        for name, layer in model.named_modules():
            if isinstance(layer, Dropout) and key is not None:
                layer.keyed(derived_key(key, name))
        return model

    def apply(self, function: Callable[..., R], params: Any, buffers: Any, *inputs: Any, key: mx.array | None = None) -> tuple[R, Any]:
        """Call `function(module, *inputs)` on a module that holds these arrays; return its result and the buffers afterwards.

        With a key, uint32[2], numbers that are drawn from MLX's global generator are a function of the key, as the masks of dropout are.
        """
        model = self.bind(params, buffers, key=key)
        with nullcontext() if key is None else drawing_from(derived_key(key, "generator")):
            result = function(model, *inputs)
        return result, get_arrays(model, self.buffers)

    def emptied(self) -> "Functional":
        """Return the same module without its arrays: others can be bound, and these are not kept alive."""
        return Functional(tree_map(_nothing, self.params), tree_map(_nothing, self.buffers), self._skeleton)


def jit(function: Callable[P, R], *, warn_above: int = 64) -> "Jitted[P, R]":
    """Compile a function of trees: attrs values, dicts, lists, tuples and None, holding MLX arrays.

    Python numbers, strings and dtypes are constants: another value is another trace, as is another shape. `.variants` counts the
    traces, which MLX keeps for ever; above `warn_above` there is a `RuntimeWarning`. The function must be pure: it runs once for each
    variant. Raises `ArgumentTypeError` for other leaves (numpy arrays, modules), going in or coming out, and `ArgumentError` for
    drawing from MLX's global generator, which would give the same numbers at every call.

    >>> double = jit(lambda tree: {"twice": tree["x"] * 2, "rest": tree["rest"]})
    >>> double({"x": mx.array(2), "rest": (1, None)})
    {'twice': array(4, dtype=int32), 'rest': (1, None)}

    See also: `functional` for the parameters of a module.
    """
    check_callable(function=function)
    check_positive(warn_above=warn_above)
    return Jitted(function, warn_above)


class Jitted(Generic[P, R]):
    """A compiled function; made by `jit`."""

    def __init__(self, function: Callable[P, R], warn_above: int) -> None:
        """Compile nothing yet."""
        update_wrapper(self, function)
        self._function = function
        self._compiler = Compiler(getattr(function, "__name__", repr(function)), function, warn_above, _argument_names)
        self._results: dict[str, tuple[TreeDef, _Constants]] = {}
        self._names = map(str, count())

    @property
    def variants(self) -> int:
        """How many traces there are: one for each structure, constant and shape."""
        return self._compiler.variants

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, compiled for these structures, constants and shapes."""
        structure, leaves = flatten((args, kwargs))
        arrays, constants = _divide(structure, leaves, "takes")
        name, results = self._compiler.get((structure, constants), partial(self._trace, structure, constants))(arrays)
        structure, constants = self._results[name]
        result: R = unflatten(structure, _merge(results, constants))
        return result

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind to an instance, as a function does: a method of an attrs class can be compiled."""
        return self if instance is None else MethodType(self, instance)

    def _trace(self, structure: TreeDef, constants: "_Constants", arrays: list[mx.array]) -> tuple[str, list[mx.array]]:
        args, kwargs = unflatten(structure, _merge(arrays, constants))
        name = getattr(self._function, "__name__", repr(self._function))
        with refusing_draws(
            f"{name} draws from MLX's global generator; compiled, it would draw the same numbers at every call. Give it a key as an "
            "argument, another for each call (mx.random.key(number)), and draw with mx.random.normal(..., key=key); a model that draws "
            "by itself takes it in functional(model).apply(..., key=key)."
        ):
            structure, leaves = flatten(self._function(*args, **kwargs))
        arrays, constants = _divide(structure, leaves, "returns")
        name = next(self._names)
        self._results[name] = structure, constants
        return name, arrays  # MLX returns the name again with each call of the trace: the arrays belong into its structure


@define
class Compiler:
    """Compiled functions by key, and a count of their variants. A cache: its results depend only on the key.

    Before the results of a call are used, ids and labels among its arguments are checked against the tables that they index.
    """

    _name: str
    _user: Callable[..., Any]  # whose arrays outside of the arguments must stay
    _warn_above: int
    _names: Callable[[Any], Sequence[str]]  # of the arguments, from the key
    _compiled: dict[Hashable, Callable[..., Any]] = field(factory=dict)
    _seen: set[Hashable] = field(factory=set)
    _outside: Outside | None = None

    @property
    def variants(self) -> int:
        """How many traces there are."""
        return len(self._seen)

    def get(self, key: Hashable, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the compiled function of a key; the first time, `function` becomes it. Its last argument is a list of arrays."""
        compiled = self._compiled.get(key)
        if compiled is None:
            bounds: Bounds = {}
            traced = mx.compile(partial(self._trace, key, function, bounds))
            compiled = self._compiled[key] = partial(_checked, self.check_outside, function, traced, bounds, partial(self._names, key))
        return compiled

    @property
    def outside(self) -> Outside:
        """Arrays that the user's function reads without being given them, as when it was first compiled."""
        if self._outside is None:
            self._outside = Outside.of(self._user)
            mx.eval(self._outside.arrays)  # MLX refuses to compile a function that reads arrays without values
        return self._outside

    def check_outside(self) -> None:
        """Raise `ArgumentError` if arrays outside of the user's function have changed."""
        if self.outside.edges and self.outside.has_changed():
            names = ", ".join(dict.fromkeys(type(module).__name__ for module in self.outside.modules)) or "arrays"
            raise ArgumentError(
                f"{self._name} is compiled and reads weights that are not its arguments ({names}). These weights have changed since. "
                "Put the parameters into the batch and call functional(module).apply "
                '(see "Models that train in turn" in the docs), or compile again after each change.'
            )

    def _trace(self, key: Hashable, function: Callable[..., Any], bounds: Bounds, *args: Any) -> Any:
        shapes = tuple((array.shape, str(array.dtype)) for array in args[-1])
        with tracing(args[-1], bounds):
            result = function(*args)
        self._seen.add((key, shapes))
        if len(self._seen) == self._warn_above + 1:
            warnings.warn(
                f"{self._name} has been compiled for {len(self._seen)} different inputs, and MLX keeps every trace for ever. The last: "
                f"{', '.join(f'{kind}{list(shape)}' for shape, kind in shapes)}. Use few batch shapes (pad_multiple, bucket_by_length) "
                "and pass numbers that change as arrays.",
                RuntimeWarning,
                stacklevel=2,
            )
        return result


def _checked(  # what belongs to one compiled function
    check_outside: Callable[[], None],
    function: Callable[..., Any],
    traced: Callable[..., Any],
    bounds: Bounds,
    names: Callable[[], Sequence[str]],
    *args: Any,
) -> Any:
    """Call a compiled function whose last argument, a list of arrays, has these bounds; a trace finds them, so `bounds` may grow."""
    check_outside()
    if not holds(bounds, args[-1], names):
        return function(*args)  # as a part of the trace that the call is in
    known = len(bounds)
    try:
        result = traced(*args)
    except ValueError as error:
        if "uncaptured inputs" not in str(error):
            raise
        result = traced(*tree_map(_renewed, args))
    if len(bounds) > known and not holds(bounds, args[-1], names):  # the result is not computed yet
        return function(*args)
    return result


def _argument_names(key: tuple[TreeDef, "_Constants"]) -> list[str]:
    """Name the arrays among the arguments of a function by what comes after the place of their argument: `input_ids` of a batch."""
    structure, constants = key
    names = [re.sub(r"^\[[01]\](\[\d+\])?\.?", "", name) or "An argument" for name in paths(structure)]  # ((args), {kwargs})
    return [name for name, constant in zip(names, constants, strict=True) if constant is None] if constants else names


def _renewed(array: mx.array) -> mx.array:
    """Return an array with the same memory. MLX refuses to trace a function that also reads one of its arguments from outside."""
    renewed = mx.stop_gradient(array)
    mx.eval(renewed)
    return renewed


def _nothing(_: mx.array) -> mx.array:
    return _NOTHING


@frozen
class _Constant:
    """A leaf that is not an array. Two are equal if they print the same: -0.0 is not 0.0, True is not 1."""

    value: Any = field(eq=lambda value: (type(value), repr(value)))


_Constants = tuple[_Constant | None, ...]  # one for each leaf, None for an array; or nothing, if there are only arrays


def _merge(arrays: list[mx.array], constants: _Constants) -> list[Any]:
    """Put the constants back between the arrays."""
    rest = iter(arrays)
    return [next(rest) if one is None else one.value for one in constants] if constants else arrays


def _divide(structure: TreeDef, leaves: list[Any], verb: str) -> tuple[list[mx.array], _Constants]:
    arrays = [leaf for leaf in leaves if isinstance(leaf, mx.array)]
    if len(arrays) == len(leaves):
        return arrays, ()
    for place, leaf in enumerate(leaves):
        if not isinstance(leaf, (mx.array, *_STATIC)):
            raise ArgumentTypeError(
                f"A compiled function {verb} trees of MLX arrays and Python constants, got {type(leaf).__name__} at "
                f"{paths(structure)[place]}. Make it an mx.array, or close over it."
            )
    return arrays, tuple(None if isinstance(leaf, mx.array) else _Constant(leaf) for leaf in leaves)
