"""Fields of configuration classes with default values, help texts and bounds. JSON schemas of configuration classes."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from attrs import NOTHING, field, fields, frozen, has

ARGUMENTS = tuple[tuple[str, Any], ...]  # pairs (name, value) for a call of another library; a value is a number or text, for example
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
    """Return a field of a configuration class. The value of the field must be within the bounds, or None if the type allows None."""
    bounds = (
        (at_least, "at least", "minimum", ge),
        (above, "above", "exclusiveMinimum", gt),
        (at_most, "at most", "maximum", le),
        (below, "below", "exclusiveMaximum", lt),
    )
    checks = tuple(Bound(bound, name, word, holds) for bound, name, word, holds in bounds if bound is not None)
    return field(default=default, metadata={"about": about, "checks": checks}, validator=lambda _, __, value: check_bounds(value, checks))


def path_option(default: str | None, about: str) -> Any:
    """Return a configuration field for a path. A leading `~` in the path is replaced by the home folder."""
    return field(default=default, metadata={"about": about, "checks": ()}, converter=_expand_home)


def code_option(default: str | tuple[str, ...] | None, about: str) -> Any:
    """Return a field of a configuration class whose value names one or several Python objects, each as `module:name`."""
    check = _CodeName()
    return field(
        default=default, metadata={"about": about, "checks": (check,)}, validator=lambda _, __, value: check_bounds(value, (check,))
    )


def _expand_home(path: Any) -> Any:
    return f"{Path.home()}{path[1:]}" if isinstance(path, str) and (path == "~" or path.startswith("~/")) else path


def check_bounds(value: Any, checks: tuple[Callable[[Any], str | None], ...]) -> None:
    """Raise `ValueError` if a check rejects the value. The message comes from the first check that fails.

    A check returns None for a valid value, otherwise a text about the expected values. The value None is always valid.
    """
    expected = None if value is None else next((message for check in checks if (message := check(value)) is not None), None)
    if expected is not None:
        raise ValueError(f"expected {expected}")


@frozen
class Bound:
    """A lower or upper bound of a number. `word` is the keyword in a JSON schema."""

    bound: float
    name: str
    word: str
    holds: Callable[[Any, Any], bool]

    def __call__(self, value: Any) -> str | None:
        """Return a description of the bound if the value is out of bounds, otherwise None."""
        return None if self.holds(value, self.bound) else f"{self.name} {self.bound:g}"


@frozen
class _CodeName:
    word: str = "pattern"
    bound: str = _CODE_NAME

    def __call__(self, value: str | tuple[str, ...]) -> str | None:
        names = (value,) if isinstance(value, str) else value
        fits = all(re.fullmatch(self.bound, name) for name in names)
        return None if fits else "the name of a part of a module, as in my_module:my_function"


@frozen
class NamesOrParts(Collection[str]):
    """Valid values of a field: the known `names`, and any text of the form `module:name`. Iteration gives only the known names.

    >>> names = NamesOrParts(("bert", "tfidf"))
    >>> "bert" in names, "bart" in names, "sklearn.svm:SVC" in names, [*names]
    (True, False, True, ['bert', 'tfidf'])
    """

    names: tuple[str, ...]

    def __contains__(self, name: object) -> bool:
        """Return True for a known name and for text of the form module:name."""
        return name in self.names or (isinstance(name, str) and re.fullmatch(_CODE_NAME, name) is not None)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def class_schema(kind: Any, *, choices: Mapping[str, Collection[str]] | None = None, path: str = "") -> dict[str, Any]:
    """Return the JSON schema of the configuration class `kind`, which describes the dicts that `structure` converts to `kind`.

    `choices` maps the path of a text field, such as `optimizer.name`, to the valid names of the field.
    """
    about = (kind.__doc__ or "").splitlines()[0]
    properties = {field.name: _property(field, choices or {}, f"{path}{field.name}") for field in fields(kind)}
    return {"type": "object", "description": about, "additionalProperties": False, "properties": properties}


def _property(field: Any, choices: Mapping[str, Collection[str]], path: str) -> dict[str, Any]:
    if has(field.type):
        return class_schema(field.type, choices=choices, path=f"{path}.")
    value = dict(field.default) if field.type == ARGUMENTS else field.default
    default = {} if field.default is NOTHING else {"default": value}
    schema = {"description": field.metadata["about"], **default, **_type(field.type, choices.get(path))}
    return schema | {check.word: check.bound for check in field.metadata["checks"]}


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
    types = [_TYPES[member] for member in kinds]
    return {"type": types[0] if len(types) == 1 else types}
