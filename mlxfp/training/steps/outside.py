"""Arrays that a function reads from closures, globals and attributes instead of arguments (outside arrays).

`mx.compile` takes the values of outside arrays as constants. After a change of an outside array, the compiled function would use the old
values.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dis import get_instructions
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import mlx.core as mx
import numpy as np
from attrs import define, field
from mlx import nn

_LIBRARIES = {"mlx", "mlxfp", "numpy", "attr", "attrs", "toolz", "pyarrow", *sys.stdlib_module_names}
_MOST = 10_000  # maximum number of Python objects visited in a search for arrays
_DEEPEST = 100  # maximum length of a path to an array; Python's recursion limit is 1,000 calls
_READ = ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME")  # bytecode of functions that read a global variable or import a module
_PLAIN = (str, bytes, int, float, complex, type(None), type(...))

Edge = tuple[Callable[[Any, Any], Any], Any, Any, Any]  # a variable, item or attribute of `holder`: `read(holder, key)` gives its value


class Reaching(ABC):
    """Base class of values that can call functions, such as a module without its arrays."""

    @abstractmethod
    def reached(self) -> tuple[Any, ...]:
        """Return the classes and functions that the value may call."""


@define
class Outside:
    """Arrays that a function reads from closures, globals and attributes.

    `has_changed` reads the variables, attributes and items that contain the arrays again, and compares the values.

    >>> teacher = nn.Linear(2, 2)
    >>> def loss(teacher, model, batch):
    ...     return (model(batch) - teacher(batch)).sum()
    >>> outside = Outside.of(partial(loss, teacher))
    >>> outside.has_changed(), [type(module).__name__ for module in outside.modules]
    (False, ['Linear'])
    >>> _ = teacher.update({"bias": mx.ones(2)})
    >>> outside.has_changed()
    True
    """

    edges: list[Edge] = field(factory=list)
    arrays: list[mx.array] = field(factory=list)
    modules: list[nn.Module] = field(factory=list)

    @classmethod
    def of(cls, function: Any) -> "Outside":
        """Find the arrays that a function, or any function that it can call, reads from closures, globals and attributes.

        `function` may also be a tuple of functions, or a `Reaching` value.
        """
        names: frozenset[str] = frozenset()
        while True:
            visit = _Visit(names, cls())
            visit.reach(function)
            if visit.names == names:
                return visit.outside
            names = frozenset(visit.names)

    def has_changed(self) -> bool:
        """Return True if a variable, attribute or item found by `Outside.of` has a new value."""
        try:
            return any(read(holder, key) is not value for read, holder, key, value in self.edges)
        except (LookupError, AttributeError, ValueError):  # the variable, attribute or item was deleted
            return True


class _Visit:
    """Search for all arrays that a function can reach. The search follows only attributes named in the code of a reached function."""

    def __init__(self, names: frozenset[str], outside: Outside) -> None:
        self.names, self.outside = set(names), outside
        self._depth = 0  # length of the current path
        self._in_model = False  # True during the search of a model's code, which may keep caches as NumPy arrays
        self._reached: dict[int, bool] = {}  # id of each visited value -> True if an array can be reached from the value
        self._alive: list[Any] = []  # visited values, kept alive because Python could give the id of a deleted value to a new object

    def reach(self, value: Any) -> bool:
        """Return True if an array can be reached from the value. Record the variables, attributes and items on the way."""
        if isinstance(value, _PLAIN) or len(self._reached) > _MOST or self._depth > _DEEPEST:
            return False
        if isinstance(value, mx.array) or (isinstance(value, np.ndarray) and not self._in_model):
            if isinstance(value, mx.array):
                self.outside.arrays.append(value)
            return True
        if id(value) in self._reached:
            return self._reached[id(value)]
        self._reached[id(value)] = False  # mark the value as visited first, so that the search ends at a reference cycle
        self._alive.append(value)
        if isinstance(value, nn.Module):
            self.outside.modules.append(value)
        leads, outer = False, self._in_model
        self._in_model = outer or isinstance(value, Reaching)
        self._depth += 1
        for read, holder, key, child in self._edges(value):
            if self.reach(child):
                self.outside.edges.append((read, holder, key, child))
                leads = True
        self._in_model, self._depth = outer, self._depth - 1
        self._reached[id(value)] = leads
        return leads

    def _edges(self, value: Any) -> Iterator[Edge]:
        if isinstance(value, partial):
            yield from _fixed(value.func, *value.args, *value.keywords.values())
        elif isinstance(value, MethodType):
            yield from _fixed(value.__self__, value.__func__)
        elif isinstance(value, FunctionType):
            yield from self._of_function(value)
        elif isinstance(value, nn.Module | dict):
            yield from ((_item, value, key, child) for key, child in list(value.items()))
            yield from _fixed(type(value), *vars(value).values()) if isinstance(value, nn.Module) else ()
        elif isinstance(value, Reaching):
            yield from _fixed(*value.reached())
        elif isinstance(value, list | tuple):
            yield from ((_item, value, key, child) for key, child in enumerate(value))
        elif isinstance(value, set | frozenset):
            yield from _fixed(*value)
        elif isinstance(value, ModuleType):
            if not _is_of_library(value.__name__):
                yield from self._named(value, vars(value))
        else:
            yield from _fixed(getattr(value, "__wrapped__", None))
            yield from self._of_object(value)

    def _of_function(self, function: FunctionType) -> Iterator[Edge]:
        yield from ((_content, cell, None, cell.cell_contents) for cell in function.__closure__ or () if cell != _EMPTY)
        yield from _fixed(*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), getattr(function, "__wrapped__", None))
        if not _is_of_library(function.__module__):
            codes, known = list(_codes(function.__code__)), function.__globals__
            names = {name for code in codes for name in code.co_names}
            self.names.update(names)
            if "getattr" in names:  # the name of an attribute may be a text in the code, as in `getattr(self, "teacher")`
                self.names.update(text for code in codes for text in code.co_consts if isinstance(text, str))
            steps = {(step.opname, step.argval) for code in codes for step in get_instructions(code) if step.opname in _READ}
            yield from ((_item, known, name, known[name]) for _, name in steps if name in known)
            yield from _fixed(*(sys.modules.get(name) for kind, name in steps if kind == "IMPORT_NAME"))

    def _of_object(self, value: Any) -> Iterator[Edge]:
        kind = value if isinstance(value, type) else type(value)
        for owner in kind.__mro__:
            if not _is_of_library(owner.__module__):
                for name, child in vars(owner).items():
                    if name in self.names or name == "__call__":
                        yield _attribute, owner, name, child
                        yield from _fixed(getattr(child, "fget", None), getattr(child, "__func__", None))  # their functions
                slots = [name for name in getattr(owner, "__slots__", ()) if name in self.names and hasattr(value, name)]
                yield from ((_attribute, value, name, getattr(value, name)) for name in slots)
        if not isinstance(value, type) and not _is_of_library(kind.__module__):
            yield from self._named(value, getattr(value, "__dict__", {}))

    def _named(self, holder: Any, values: Any) -> Iterator[Edge]:
        yield from ((_item, values, name, child) for name, child in list(values.items()) if name in self.names)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function and of its inner functions."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


_EMPTY = CellType()


def _fixed(*values: Any) -> Iterator[Edge]:
    """Yield references to values that cannot change, such as the arguments of a `partial`: each value as an item of the tuple `values`."""
    yield from ((_item, values, index, value) for index, value in enumerate(values))


def _item(holder: Any, key: Any) -> Any:
    return holder[key]


def _content(cell: CellType, _: None) -> Any:
    return cell.cell_contents


def _attribute(holder: Any, name: str) -> Any:
    return vars(holder)[name] if isinstance(holder, type) else getattr(holder, name)


def _is_of_library(name: str | None) -> bool:
    return (name or "").partition(".")[0] in _LIBRARIES
