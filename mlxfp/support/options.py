"""Fields of classes that files configure: a default, a help text, and the bounds of a value; and JSON schemas of such classes."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from attrs import NOTHING, field, fields, frozen, has

ARGUMENTS = tuple[tuple[str, Any], ...]  # names with plain values, as a frozen class stores them: arguments of another library
_CODE_NAME = r"^[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*$"
_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string", type(None): "null"}


def option(  # noqa: PLR0913  # bounds are keyword-only
    default: Any,
    about: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> Any:
    """Make a field of a configuration class; a value of None, where the type allows it, passes every check."""
    bounds = (
        (at_least, "at least", "minimum", ge),
        (above, "above", "exclusiveMinimum", gt),
        (at_most, "at most", "maximum", le),
        (below, "below", "exclusiveMaximum", lt),
    )
    checks = tuple(Bound(bound, name, word, holds) for bound, name, word, holds in bounds if bound is not None)
    return field(default=default, metadata={"about": about, "checks": checks}, validator=lambda _, __, value: check_bounds(value, checks))


def path_option(default: str | None, about: str) -> Any:
    """Make a field that holds a path; `~` becomes the home folder, since a shell does not expand it after a `=`."""
    return field(default=default, metadata={"about": about, "checks": ()}, converter=_expand_home)


def code_option(default: str | tuple[str, ...] | None, about: str) -> Any:
    """Make a field that names a part of a module of Python, as `module:name`, or several."""
    check = _CodeName()
    return field(
        default=default, metadata={"about": about, "checks": (check,)}, validator=lambda _, __, value: check_bounds(value, (check,))
    )


def _expand_home(path: Any) -> Any:
    return f"{Path.home()}{path[1:]}" if isinstance(path, str) and (path == "~" or path.startswith("~/")) else path


def check_bounds(value: Any, checks: tuple[Callable[[Any], str | None], ...]) -> None:
    """Raise `ValueError` for the first check that a value fails; a check returns what it expects instead, or None."""
    expected = None if value is None else next((said for check in checks if (said := check(value)) is not None), None)
    if expected is not None:
        raise ValueError(f"expected {expected}")


@frozen
class Bound:
    """A bound of a number: at least, above, at most or below another; `word` is its keyword in a JSON schema."""

    bound: float
    name: str
    word: str
    holds: Callable[[Any, Any], bool]

    def __call__(self, value: Any) -> str | None:
        """Return what is expected if the value is out of bounds, else None."""
        return None if self.holds(value, self.bound) else f"{self.name} {self.bound:g}"


@frozen
class _CodeName:
    """Return a check for texts of the form module:name."""

    word: str = "pattern"
    bound: str = _CODE_NAME

    def __call__(self, value: str | tuple[str, ...]) -> str | None:
        names = (value,) if isinstance(value, str) else value
        fits = all(re.fullmatch(self.bound, name) for name in names)
        return None if fits else "the name of a part of a module, as in my_module:my_function"


@frozen
class NamesOrParts(Collection[str]):
    """The known names of a field that may also name a part of a module, as module:name.

    >>> names = NamesOrParts(("bert", "tfidf"))
    >>> "bert" in names, "bart" in names, "sklearn.svm:SVC" in names, [*names]
    (True, False, True, ['bert', 'tfidf'])
    """

    names: tuple[str, ...]

    def __contains__(self, name: object) -> bool:
        """Tell whether a text is a known name, or of the form module:name."""
        return name in self.names or (isinstance(name, str) and re.fullmatch(_CODE_NAME, name) is not None)

    def __iter__(self) -> Iterator[str]:
        """Yield the known names."""
        return iter(self.names)

    def __len__(self) -> int:
        """Return how many names are known."""
        return len(self.names)


def class_schema(kind: Any, *, choices: Mapping[str, Collection[str]] | None = None, path: str = "") -> dict[str, Any]:
    """Return the JSON schema of the plain values that `structure` makes a class of.

    `choices` has the known names of fields that are plain text in the class, by their paths, such as `optimizer.name`.
    """
    about = (kind.__doc__ or "").splitlines()[0]
    properties = {field.name: _property(field, choices or {}, f"{path}{field.name}") for field in fields(kind)}
    return {"type": "object", "description": about, "additionalProperties": False, "properties": properties}


def _property(field: Any, choices: Mapping[str, Collection[str]], path: str) -> dict[str, Any]:
    if has(field.type):
        return class_schema(field.type, choices=choices, path=f"{path}.")
    value = dict(field.default) if field.type == ARGUMENTS else field.default
    default = {} if field.default is NOTHING else {"default": value}
    made = {"description": field.metadata["about"], **default, **_type(field.type, choices.get(path))}
    return made | {check.word: check.bound for check in field.metadata["checks"]}


def _type(kind: Any, names: Collection[str] | None) -> dict[str, Any]:
    origin: Any = get_origin(kind)
    if origin is Literal:
        return {"enum": list(get_args(kind))}
    kinds = get_args(kind) or (kind,)
    if kind == ARGUMENTS:
        return {"type": "object"}
    if isinstance(names, NamesOrParts):
        return {"anyOf": [_type(kind, names.names), {"type": "string", "pattern": _CODE_NAME}]}
    if names is not None:
        return {"enum": [*names, *([None] if type(None) in kinds else [])]}
    if origin is tuple:
        return {"type": "array", "items": {"type": "string"}}
    types = [_TYPES[each] for each in kinds]
    return {"type": types[0] if len(types) == 1 else types}
