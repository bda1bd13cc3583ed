"""Trees of nested attrs values, dicts, lists and tuples: exact splitting into a structure and leaves, and rebuilding.

A tree is an attrs instance, a dict, a list, a tuple, a named tuple or None, with trees as children. Any other value is a leaf.
Instances of subclasses of these types are leaves, because their additional state could not be rebuilt. The structure is hashable
and comparable. The structure distinguishes tuples from lists and `{"0": x}` from `[x]`, and keeps empty dicts and dots in keys.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property
from itertools import islice
from typing import Any

import attrs

from mlxfp.support.errors import ArgumentError, ArgumentTypeError

# The structure of a node is the tuple (type, keys, structures of the children). The structure of a leaf is ().
# Every call of a compiled function compares tree structures. Comparing tuples is fast.
_Node = tuple[Any, ...]
_LEAF: _Node = ()
_Build = Callable[[Iterator[Any]], Any]


@attrs.frozen(cache_hash=True)
class TreeDef:
    """Hashable structure of a tree, without the leaves."""

    node: _Node
    size: int = attrs.field(eq=False)

    @cached_property
    def build(self) -> _Build:
        """Function that builds a tree of this structure from an iterator of leaves."""
        return _builder(self.node)

    def __str__(self) -> str:
        return str(unflatten(self, [_Star()] * self.size))


class _Star:
    def __repr__(self) -> str:
        return "*"


def flatten(tree: Any) -> tuple[TreeDef, list[Any]]:
    """Return the structure and the leaves of a tree.

    Raises `ArgumentTypeError` for dict keys that are neither str nor int.
    """
    leaves: list[Any] = []
    node = _split(tree, leaves)
    return TreeDef(node, len(leaves)), leaves


def unflatten(structure: TreeDef, leaves: Sequence[Any]) -> Any:
    """Build a tree from a structure and its leaves: the inverse of `flatten`.

    attrs values are rebuilt field by field, without running converters, validators or `__attrs_post_init__` a second time.
    Raises `ArgumentError` if the number of leaves differs from the structure.
    """
    if len(leaves) != structure.size:
        raise ArgumentError(f"The tree has {structure.size} leaves, got {len(leaves)}: {structure}.")
    return structure.build(iter(leaves))


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Apply a function to every leaf, or to corresponding leaves of several trees with the same structure.

    Raises `ArgumentError` if the structure of a tree differs from the first tree.
    """
    structure, leaves = flatten(tree)
    columns = [leaves]
    for other in others:
        other_structure, other_leaves = flatten(other)
        if other_structure != structure:
            raise ArgumentError(f"tree_map needs trees of the same structure. {difference(structure, other_structure)}")
        columns.append(other_leaves)
    return unflatten(structure, [function(*row) for row in zip(*columns, strict=True)])


def paths(structure: TreeDef) -> tuple[str, ...]:
    """Return a unique name for every leaf, in the order of `flatten`. The name is the Python expression that accesses the leaf."""
    return tuple(name.removeprefix(".") for name in _leaf_names(structure.node, ""))


def difference(expected: TreeDef, actual: TreeDef) -> str:
    """Return a description of the differences between two structures, or an empty string for equal structures."""
    if expected == actual:
        return ""
    expected_paths, actual_paths = paths(expected), paths(actual)
    lines = {
        "Missing": [name for name in expected_paths if name not in actual_paths],
        "Unexpected": [name for name in actual_paths if name not in expected_paths],
    }
    text = " ".join(f"{kind}: {', '.join(names)}." for kind, names in lines.items() if names)
    return text or f"Same leaves, but other containers or another order: expected {expected!s:.200}, got {actual!s:.200}."


def _split(tree: Any, leaves: list[Any]) -> _Node:
    kind: Any = type(tree)
    keys: Any
    children: Iterable[Any]
    if kind is dict:
        keys, children = tuple(tree), tree.values()
        for key in keys:
            if type(key) is not str and type(key) is not int:  # keys of other types are refused, because 1, 1.0 and True are equal
                raise ArgumentTypeError(f"The keys of a dict in a tree must be str or int, got {key!r} among {list(keys)}.")
    elif kind is list or kind is tuple:
        keys, children = None, tree
    elif (fields := _fields(kind)) is None:
        leaves.append(tree)
        return _LEAF
    else:
        keys, children = fields, [getattr(tree, name) for name in fields]
    nodes = []
    for child in children:  # leaves are handled here, because a recursive call for each leaf would double the time
        if type(child) in _LEAF_KINDS:
            leaves.append(child)
            nodes.append(_LEAF)
        else:
            nodes.append(_split(child, leaves))
    return kind, keys, tuple(nodes)


def _builder(node: _Node) -> _Build:
    """Return a function that builds a tree from an iterator of leaves. Cached per structure for speed in training steps."""
    if not node:
        return next
    kind, keys, nodes = node
    count, parts = len(nodes), [_builder(child) for child in nodes]
    if any(nodes):
        children: Callable[[Iterator[Any]], Iterable[Any]] = lambda leaves: [part(leaves) for part in parts]  # noqa: E731
    else:
        children = lambda leaves: islice(leaves, count)  # noqa: E731  # all children are leaves
    if kind is dict:
        return lambda leaves: dict(zip(keys, children(leaves)))  # noqa: B905  # as many leaves as keys
    if kind is list:
        return lambda leaves: list(children(leaves))
    if issubclass(kind, tuple):
        return lambda leaves: tuple.__new__(kind, children(leaves))
    if kind is type(None):
        return lambda leaves: None
    return lambda leaves: _with_fields(kind, keys, children(leaves))


def _with_fields(kind: Any, names: Sequence[str], values: Iterable[Any]) -> Any:
    tree = object.__new__(kind)
    for name, value in zip(names, values, strict=True):
        object.__setattr__(tree, name, value)
    return tree


_LEAF_KINDS: set[Any] = set()  # cache of known leaf types, filled by `_fields`


@cache
def _fields(kind: Any) -> tuple[str, ...] | None:
    """Return the field names of a node type, or None for a leaf type."""
    if kind is type(None):
        return ()
    if "__attrs_attrs__" in vars(kind):  # a subclass that is not an attrs class may have state besides the inherited fields
        return tuple(field.name for field in attrs.fields(kind))
    if issubclass(kind, tuple) and "_fields" in vars(kind):
        return tuple(vars(kind)["_fields"])
    if kind not in (dict, list, tuple):
        _LEAF_KINDS.add(kind)
    return None


def _leaf_names(node: _Node, prefix: str) -> Iterator[str]:
    if not node:
        yield prefix
        return
    _, keys, children = node
    for key, child in zip(range(len(children)) if keys is None else keys, children, strict=True):
        plain = isinstance(key, str) and key.isidentifier()
        yield from _leaf_names(child, f"{prefix}.{key}" if plain else f"{prefix}[{key!r}]")
