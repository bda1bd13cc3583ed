"""Registries: immutable mappings from names to values. `registry | {...}` returns a new registry."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, TypeVar

from attrs import field, frozen

from mlxfp.support.checks import check_text, check_types
from mlxfp.support.errors import unknown_name

T = TypeVar("T")


def _entries(entries: Any) -> tuple[tuple[str, Any], ...]:
    """Return the entries sorted by name, so that registries with equal entries are equal."""
    if isinstance(entries, tuple):  # `attrs.evolve` calls this converter with entries that are sorted already
        return entries
    check_types(Mapping, entries=entries)
    for name in entries:
        check_text(**{f"the name of entry {name!r}": name})
    return tuple(sorted(entries.items()))


@frozen(repr=False)
class Registry(Mapping[str, T]):
    """An immutable mapping from names to values of one kind, sorted by name.

    An unknown name raises `UnknownNameError`, a `KeyError` with the nearest known name. `registry | {"mine": value}` returns a new
    registry. The new value replaces an entry with the same name.

    >>> shapes = Registry("shape", {"round": 0, "square": 4})
    >>> mine = shapes | {"triangle": 3}
    >>> mine["triangle"], len(shapes), mine
    (3, 2, Registry of 3 shapes: round, square, triangle)
    >>> shapes["sqare"]
    Traceback (most recent call last):
    mlxfp.support.errors.UnknownNameError: No shape is named 'sqare'. Did you mean 'square'? Known: round, square.
    """

    kind: str
    entries: tuple[tuple[str, T], ...] = field(converter=_entries)

    @cached_property
    def _values(self) -> dict[str, T]:
        return dict(self.entries)

    def __getitem__(self, name: str) -> T:
        """Return the value. Raises `UnknownNameError` for an unknown name."""
        if name not in self._values:
            raise unknown_name(self.kind, str(name), self._values)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self.entries)

    def __or__(self, others: Mapping[str, T]) -> "Registry[T]":
        """Return a registry with additional entries."""
        check_types(Mapping, others=others)
        return Registry(self.kind, dict(self) | dict(others))

    def __repr__(self) -> str:
        return f"Registry of {len(self)} {self.kind}{'' if len(self) == 1 else 's'}: {', '.join(self) or 'none'}"
