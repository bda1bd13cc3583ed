"""Trees: nested attrs values, dicts, lists and tuples, taken apart into a structure and its leaves and put together again, exactly.

A tree is an attrs instance, a dict, a list, a tuple, a named tuple or None, holding trees; anything else is a leaf. Instances of subclasses
of these are leaves, because any further state that they have could not be rebuilt. The structure is a value that compares and hashes. It
tells a tuple from a list and `{"0": x}` from `[x]`, and keeps empty dicts and dots in keys.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import attrs

from mlxfp.core.errors import ArgumentError, ArgumentTypeError

# The structure of a node is (type, keys, structures of the children), that of a leaf is (). They are plain tuples because Python
# builds, hashes and compares those in C: a tree is taken apart before every call of a compiled function.
_Node = tuple[Any, ...]
_LEAF: _Node = ()


@attrs.frozen
class TreeDef:
    """The structure of a tree without its leaves. Hashable."""

    node: _Node
    size: int = attrs.field(eq=False)

    def __str__(self) -> str:
        return str(unflatten(self, [_Star()] * self.size))


class _Star:
    def __repr__(self) -> str:
        return "*"


def flatten(tree: Any) -> tuple[TreeDef, list[Any]]:
    """Split a tree into its structure and its leaves.

    Raises `ArgumentTypeError` for dict keys that are neither str nor int.
    """
    leaves: list[Any] = []
    node = _split(tree, leaves)
    return TreeDef(node, len(leaves)), leaves


def unflatten(structure: TreeDef, leaves: Sequence[Any]) -> Any:
    """Put a tree together from its structure and its leaves: the inverse of `flatten`.

    attrs values are rebuilt field by field, without converters, validators or `__attrs_post_init__`: they have run already.
    Raises `ArgumentError` if there are more or fewer leaves than the structure has.
    """
    if len(leaves) != structure.size:
        raise ArgumentError(f"The tree has {structure.size} leaves, got {len(leaves)}: {structure}.")
    return _rebuild(structure.node, iter(leaves))


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Apply a function to every leaf, or to the leaves at the same places of several trees of one structure.

    Raises `ArgumentError` if the structure of a tree differs from that of the first.
    """
    structure, leaves = flatten(tree)
    columns = [leaves]
    for other in others:
        found, more = flatten(other)
        if found != structure:
            raise ArgumentError(f"tree_map needs trees of one structure. {difference(structure, found)}")
        columns.append(more)
    return unflatten(structure, [function(*row) for row in zip(*columns, strict=True)])


def paths(structure: TreeDef) -> tuple[str, ...]:
    """Name every leaf, in the order of `flatten`, by the Python expression that reaches it; names are unique."""
    return tuple(name.removeprefix(".") for name in _leaf_names(structure.node, ""))


def difference(expected: TreeDef, found: TreeDef) -> str:
    """Say how two structures differ; return an empty string if they are equal."""
    if expected == found:
        return ""
    wanted, had = paths(expected), paths(found)
    lines = {"Missing": [name for name in wanted if name not in had], "Unexpected": [name for name in had if name not in wanted]}
    said = " ".join(f"{kind}: {', '.join(names)}." for kind, names in lines.items() if names)
    return said or f"The same leaves in other containers or in another order: expected {expected!s:.200}, got {found!s:.200}."


def _split(tree: Any, leaves: list[Any]) -> _Node:
    kind: Any = type(tree)
    keys: Any
    children: Iterable[Any]
    if kind is dict:
        keys, children = tuple(tree), tree.values()
        for key in keys:
            if type(key) is not str and type(key) is not int:  # True == 1 == 1.0 would make different structures equal
                raise ArgumentTypeError(f"The keys of a dict in a tree must be str or int, got {key!r} among {list(keys)}.")
    elif kind is list or kind is tuple:
        keys, children = None, tree
    elif (fields := _fields(kind)) is None:
        leaves.append(tree)
        return _LEAF
    else:
        keys, children = fields, [getattr(tree, name) for name in fields]
    return kind, keys, tuple([_split(child, leaves) for child in children])


def _rebuild(node: _Node, leaves: Iterator[Any]) -> Any:
    if not node:
        return next(leaves)
    kind, keys, nodes = node
    children = [_rebuild(child, leaves) for child in nodes]
    if kind is dict:
        return dict(zip(keys, children, strict=True))
    if kind is list:
        return children
    if issubclass(kind, tuple):
        return tuple.__new__(kind, children)
    if kind is type(None):
        return None
    tree = object.__new__(kind)
    for name, child in zip(keys, children, strict=True):
        object.__setattr__(tree, name, child)
    return tree


@cache
def _fields(kind: Any) -> tuple[str, ...] | None:
    """Return the names of the fields of a node type; None for the type of a leaf."""
    if kind is type(None):
        return ()
    if "__attrs_attrs__" in vars(kind):  # not of a base class alone: a plain subclass may hold more than the fields
        return tuple(field.name for field in attrs.fields(kind))
    if issubclass(kind, tuple) and "_fields" in vars(kind):
        return tuple(vars(kind)["_fields"])
    return None


def _leaf_names(node: _Node, prefix: str) -> Iterator[str]:
    if not node:
        yield prefix
        return
    _, keys, children = node
    for place, child in zip(range(len(children)) if keys is None else keys, children, strict=True):
        plain = isinstance(place, str) and place.isidentifier()
        yield from _leaf_names(child, f"{prefix}.{place}" if plain else f"{prefix}[{place!r}]")
