"""`jit` compiles functions of trees. `functional` turns a module into parameters and a pure function.

Plain `mx.compile` has two problems. First, `mx.compile` refuses attrs objects as arguments, and leaks placeholder arrays (tracers) through
attrs objects in results. Second, its cache ignores the boundaries of containers, so `f([x], y)` after `f([x, y])` silently runs the wrong
trace. This module compiles one function for each tree structure and each set of Python constants, with flat lists of arrays as arguments.
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
from mlxfp.models.layers import Dropout, check_module, derived_key
from mlxfp.support.checks import check_callable, check_positive
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
from mlxfp.training.steps.outside import Outside, Reaching

P = ParamSpec("P")
R = TypeVar("R")

_NOTHING = mx.array(0.0)
_STATIC = (str, bytes, int, float, complex, mx.Dtype)


def functional(model: nn.Module) -> "Functional":
    """Split a module into its parameters, its buffers, and a pure function to apply the module.

    `params` are the trainable floating-point arrays. `buffers` are all other arrays: frozen arrays, running statistics and integers. The
    module is copied, so later changes of the original have no effect. `nn.Dropout` and `nn.Embedding` are replaced by the layers of
    `models.layers`, also in models of other libraries. These layers draw from a key and refuse ids out of range.

    >>> model = functional(nn.Linear(2, 1))
    >>> zeros = {"weight": mx.zeros((1, 2)), "bias": mx.array([3.0])}
    >>> output, buffers = model.apply(lambda linear, x: linear(x), zeros, {}, mx.ones((4, 2)))
    >>> output.squeeze().tolist()
    [3.0, 3.0, 3.0, 3.0]
    """
    check_module(model)
    params, buffers = split_arrays(model)
    skeleton = copy_module(model)
    for tree in (params, buffers):
        put_arrays(skeleton, tree_map(_nothing, tree))  # the copied module must not keep the weights in memory
    return Functional(params, buffers, skeleton)


@frozen(eq=False)
class Functional(Reaching):
    """A module split into its arrays and a pure function, built by `functional`.

    `params` and `buffers` are trees of dicts and lists, as accepted by `Module.update`.
    """

    params: Any = field(repr=False)
    buffers: Any = field(repr=False)
    _skeleton: nn.Module

    @property
    def kind(self) -> type[nn.Module]:
        """Class of the module."""
        return type(self._skeleton)

    def bind(self, params: Any, buffers: Any, *, key: mx.array | None = None) -> nn.Module:
        """Return a new module with the given arrays. With a key, uint32[2], the module is in training mode and dropout draws from the key.

        A part that was frozen and set to evaluation mode, as by `body.freeze()` and `body.eval()`, stays in evaluation mode.

        The original module never changes and never contains placeholder arrays of `mx.compile`, even after an exception. Raises
        `ArgumentError` if `params` or `buffers` belong to another module.
        """
        for name, expected, given in (("params", self.params, params), ("buffers", self.buffers, buffers)):
            if differs := difference(flatten(expected)[0], flatten(given)[0]):
                raise ArgumentError(f"The arrays in {name} do not fit this {type(self._skeleton).__name__}. {differs}")
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
        """Call `function(module, *inputs)` on a module with the given arrays. Return the result and the updated buffers.

        With a key, uint32[2], dropout masks and numbers drawn from MLX's global generator are a function of the key.
        """
        model = self.bind(params, buffers, key=key)
        with nullcontext() if key is None else drawing_from(derived_key(key, "generator")):
            result = function(model, *inputs)
        return result, get_arrays(model, self.buffers)

    def reached(self) -> tuple[Any, ...]:
        """Return the classes and functions of the module, which may read arrays outside `params` and `buffers`."""
        modules = self._skeleton.modules()
        values = [value for module in modules for value in (*module.values(), *vars(module).values())]
        items = [item for value in values for item in (value if isinstance(value, list | tuple) else [value])]
        return *map(type, modules), *(item for item in items if callable(item) and not isinstance(item, nn.Module))

    def emptied(self) -> "Functional":
        """Return the same module without its arrays. `bind` accepts other arrays, and the original arrays can be freed."""
        return Functional(tree_map(_nothing, self.params), tree_map(_nothing, self.buffers), self._skeleton)


def jit(function: Callable[P, R], *, warn_above: int = 64) -> "Jitted[P, R]":
    """Compile a function whose arguments and results are trees of MLX arrays.

    A tree is an array, None, or a dict, list, tuple or attrs object of trees. Python numbers, strings and dtypes in a tree are constants of
    the compiled function. A new constant or shape causes a new trace. The attribute `.variants` is the number of traces. MLX never frees
    traces, so more than `warn_above` traces cause a `RuntimeWarning`. The function must be pure, because its Python code runs only once per
    trace.

    Raises `ArgumentTypeError` if a tree has other values, such as NumPy arrays or modules. Raises `ArgumentError` for draws from MLX's
    global generator, which would return the same numbers in every call.

    >>> double = jit(lambda tree: {"twice": tree["x"] * 2, "rest": tree["rest"]})
    >>> double({"x": mx.array(2), "rest": (1, None)})
    {'twice': array(4, dtype=int32), 'rest': (1, None)}

    See also: `functional` for the parameters of a module.
    """
    check_callable(function=function)
    check_positive(warn_above=warn_above)
    return Jitted(function, warn_above)


class Jitted(Generic[P, R]):
    """A compiled function, built by `jit`."""

    def __init__(self, function: Callable[P, R], warn_above: int) -> None:
        """Store the function. Compilation happens at the first call."""
        update_wrapper(self, function)
        self._function = function
        self._compiler = Compiler(getattr(function, "__name__", repr(function)), function, warn_above, _argument_names)
        self._results: dict[str, tuple[TreeDef, _Constants]] = {}
        self._names = map(str, count())

    @property
    def variants(self) -> int:
        """Number of traces. Each new combination of structure, constants and shapes adds a trace."""
        return self._compiler.variants

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, compiled for the structure, constants and shapes of the arguments."""
        structure, leaves = flatten((args, kwargs))
        arrays, constants = _divide(structure, leaves, "takes")
        name, results = self._compiler.get((structure, constants), partial(self._trace, structure, constants))(arrays)
        structure, constants = self._results[name]
        result: R = unflatten(structure, _merge(results, constants))
        return result

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind the compiled function to an instance, so that `jit` can compile methods of an attrs class."""
        return self if instance is None else MethodType(self, instance)

    def _trace(self, structure: TreeDef, constants: "_Constants", arrays: list[mx.array]) -> tuple[str, list[mx.array]]:
        args, kwargs = unflatten(structure, _merge(arrays, constants))
        name = getattr(self._function, "__name__", repr(self._function))
        with refusing_draws(
            f"{name} draws from MLX's global generator, and every compiled call would draw the same numbers. Pass a different key to each "
            "call, such as mx.random.key(number), and draw with mx.random.normal(..., key=key). For a model with random layers, pass the "
            "key to functional(model).apply(..., key=key)."
        ):
            structure, leaves = flatten(self._function(*args, **kwargs))
        arrays, constants = _divide(structure, leaves, "returns")
        name = next(self._names)
        self._results[name] = structure, constants
        return name, arrays  # the caller reads the structure of the result from `_results[name]`


@define
class Compiler:
    """A cache of compiled functions. `variants` is the number of traces (compilations).

    For a known key, `get(key, function)` returns the stored compiled function. Functions with equal keys must therefore compute the same
    results. The compiled function checks the ids and labels in its arguments, for example against the size of an embedding table.
    """

    _name: str
    _user: Any  # functions of the user; may use arrays that are not arguments (see `outside.py`)
    _warn_above: int
    _names: Callable[[Any], Sequence[str]]  # returns the argument names for a cache key
    _compiled: dict[Hashable, Callable[..., Any]] = field(factory=dict)
    _seen: set[Hashable] = field(factory=set)
    _outside: Outside | None = None

    @property
    def variants(self) -> int:
        """Number of traces (compilations)."""
        return len(self._seen)

    def get(self, key: Hashable, function: Callable[..., Any]) -> Callable[..., Any]:
        """Compile `function` for a new key. Return the compiled function. The last argument of `function` is a list of arrays."""
        compiled = self._compiled.get(key)
        if compiled is None:
            bounds: Bounds = {}
            traced = mx.compile(partial(self._trace, key, function, bounds))
            compiled = self._compiled[key] = partial(self._call, function, traced, bounds, partial(self._names, key))
        return compiled

    @property
    def outside(self) -> Outside:
        """Arrays that the function of the user reads from closures, globals and attributes, recorded at the first compilation."""
        if self._outside is None:
            self._outside = Outside.of(self._user)
            mx.eval(self._outside.arrays)  # compute the arrays now, because MLX cannot compile a function that reads lazy arrays
        return self._outside

    def check_outside(self) -> None:
        """Raise `ArgumentError` if an array from a closure, global or attribute, read by the function, has changed since compilation."""
        if self.outside.edges and self.outside.has_changed():
            names = ", ".join(dict.fromkeys(type(module).__name__ for module in self.outside.modules)) or "arrays"
            raise ArgumentError(
                f"{self._name} reads weights ({names}) that are not among its arguments, and the weights have changed since compilation. "
                "Pass the weights as part of the batch and compute with functional(module).apply "
                '(see "Models that train in turn" in the docs), or compile again after each change.'
            )

    def _call(
        self, function: Callable[..., Any], traced: Callable[..., Any], bounds: Bounds, names: Callable[[], Sequence[str]], *args: Any
    ) -> Any:
        """Check the ids and labels in the last argument, and call a compiled function. `bounds` is the set of range checks."""
        self.check_outside()
        if not holds(bounds, args[-1], names):
            return function(*args)  # inside another compiled function, no separate compilation is necessary
        known = len(bounds)
        try:
            result = traced(*args)
        except ValueError as error:
            if "uncaptured inputs" not in str(error):
                raise
            result = traced(*tree_map(_renewed, args))
        if len(bounds) > known and not holds(bounds, args[-1], names):  # for invalid ids, `holds` raises before MLX computes `result`
            return function(*args)
        return result

    def _trace(self, key: Hashable, function: Callable[..., Any], bounds: Bounds, *args: Any) -> Any:
        shapes = tuple((array.shape, str(array.dtype)) for array in args[-1])
        with tracing(args[-1], bounds):
            result = function(*args)
        self._seen.add((key, shapes))
        if len(self._seen) == self._warn_above + 1:
            warnings.warn(
                f"{self._name} has been compiled for {len(self._seen)} different inputs, and MLX never frees a trace. Last input: "
                f"{', '.join(f'{kind}{list(shape)}' for shape, kind in shapes)}. Use few batch shapes (pad_multiple, bucket_by_length) "
                "and pass numbers that change as arrays.",
                RuntimeWarning,
                stacklevel=2,
            )
        return result


def _argument_names(key: tuple[TreeDef, "_Constants"]) -> list[str]:
    """Return the name of each array in the arguments, for example `input_ids` for the path `[0][0].input_ids`."""
    structure, constants = key
    names = [re.sub(r"^\[[01]\](\[\d+\])?\.?", "", name) or "An argument" for name in paths(structure)]
    return [name for name, constant in zip(names, constants, strict=True) if constant is None] if constants else names


def _renewed(array: mx.array) -> mx.array:
    """Return a new array object with the same memory. MLX cannot compile a function if an argument is also an array of its closure."""
    renewed = mx.stop_gradient(array)
    mx.eval(renewed)
    return renewed


def _nothing(_: mx.array) -> mx.array:
    return _NOTHING


@frozen
class _Constant:
    """A leaf other than an array. Leaves are equal if type and repr are equal: -0.0 differs from 0.0, True differs from 1."""

    value: Any = field(eq=lambda value: (type(value), repr(value)))


_Constants = tuple[_Constant | None, ...]  # entry of each leaf: the constant, or None for an array; an empty tuple if all leaves are arrays


def _merge(arrays: list[mx.array], constants: _Constants) -> list[Any]:
    """Return the leaves of a tree in order, from the arrays and constants separated by `_divide`."""
    rest = iter(arrays)
    return [next(rest) if constant is None else constant.value for constant in constants] if constants else arrays


def _divide(structure: TreeDef, leaves: list[Any], verb: str) -> tuple[list[mx.array], _Constants]:
    arrays = [leaf for leaf in leaves if isinstance(leaf, mx.array)]
    if len(arrays) == len(leaves):
        return arrays, ()
    for index, leaf in enumerate(leaves):
        if not isinstance(leaf, (mx.array, *_STATIC)):
            raise ArgumentTypeError(
                f"A compiled function {verb} trees of MLX arrays and Python constants, got {type(leaf).__name__} at "
                f"{paths(structure)[index]}. Convert it to an mx.array, or use a closure variable."
            )
    return arrays, tuple(None if isinstance(leaf, mx.array) else _Constant(leaf) for leaf in leaves)
