"""Plain values to frozen classes and back, with cattrs: strict, and all mistakes at once.

cattrs' own `transform_error` gives neither the origin of a value nor a hint, so the tree of its errors is walked here.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache, partial
from typing import Any, Literal, TypeVar, get_args, get_origin

from attrs import fields, has

from mlxfp.support.errors import ConfigError, MlxfpError
from mlxfp.support.optional import optional
from mlxfp.support.options import ARGUMENTS, check_bounds
from mlxfp.support.yaml_files import Place

T = TypeVar("T")
Origin = Callable[[Place], str]  # where a value was set: a file with its line, the command line
Hint = Callable[[str], str | None]  # what an unknown key probably means, if that is another place

_PAIRS = tuple[tuple[str, str], ...]  # a mapping, as a frozen class stores it


def structure(  # noqa: PLR0913  # what has a default is keyword-only
    values: Mapping[str, Any],
    kind: type[T],
    *,
    what: str = "the configuration",
    origin: Origin | None = None,
    choices: Mapping[str, Collection[str]] | None = None,
    hint: Hint | None = None,
) -> T:
    """Make a value of a frozen class from a tree of plain values; errors call the tree `what`.

    Every value must have its type: 3.7, True and "3" are not integers; an integer is also a float. A tuple is a list in the tree, a tuple
    of pairs of texts a mapping. A field may have `checks` in its metadata: functions that return what is expected instead of a value,
    or None. `choices` has the known names of text values, by paths such as `optimizer.name`. Raises `ConfigError` with every mistake: its
    path, where the value was set (`origin`), what was expected and what was found; for an unknown key what `hint` says about it, or the
    nearest known one.

    >>> from attrs import field, frozen
    >>> @frozen(kw_only=True)
    ... class Loop:
    ...     epochs: int
    ...     size: int = field(default=8, metadata={"checks": (lambda size: None if size > 0 else "above 0",)})
    >>> structure({"epochs": 3}, Loop)
    Loop(epochs=3, size=8)
    >>> structure({"epochs": 3.7, "sise": 8, "size": 0}, Loop, what="run.yaml")
    Traceback (most recent call last):
    mlxfp.support.errors.ConfigError: 3 mistakes in run.yaml:
      epochs: expected an integer, got 3.7
      sise: unknown key; did you mean 'size'?
      size: expected above 0, got 0
    """
    converter, cause, mistakes = _converter(), None, dict(_unknown_choices(values, choices or {}))
    try:
        made: T = converter.structure(values, kind)
    except Exception as error:
        found = dict(_mistakes(error, (), values, kind, hint or (lambda _: None)))
        if not found:  # a bug in a class
            raise
        cause, mistakes = error, mistakes | found
    else:
        if not mistakes:
            return made
    lines = [f"{_named(place, origin)}: {mistakes[place]}" for place in sorted(mistakes, key=lambda place: _order(place, values))]
    count = f"{len(lines)} mistakes" if len(lines) > 1 else "A mistake"
    raise ConfigError("\n  ".join([f"{count} in {what}:", *lines])) from cause


def unstructure(value: Any) -> dict[str, Any]:
    """Return a value of a frozen class as a tree of plain values, of which `structure` makes an equal value.

    >>> from attrs import frozen
    >>> @frozen
    ... class Loop:
    ...     epochs: int
    ...     parts: tuple[str, ...] = ()
    ...     names: tuple[tuple[str, str], ...] = ()
    >>> unstructure(Loop(3, ("a",), (("b", "c"),)))
    {'epochs': 3, 'parts': ['a'], 'names': {'b': 'c'}}
    """
    tree: dict[str, Any] = _converter().unstructure(value)
    return tree


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of a tree by their paths, such as `training.epochs`."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


@lru_cache(maxsize=1)
def _converter() -> Any:
    cattrs = optional("cattrs", extra="config", needed_by="a file of settings")
    converter = cattrs.Converter(forbid_extra_keys=True, unstruct_collection_overrides={tuple: list})
    for kind, name in ((int, "an integer"), (float, "a number"), (bool, "true or false"), (str, "text")):
        converter.register_structure_hook(kind, partial(_strict, name=name))
    converter.register_structure_hook_factory(has, lambda kind: _class_hook(converter, kind))
    converter.register_structure_hook_func(
        lambda kind: getattr(kind, "__origin__", None) is tuple, lambda value, kind: _tuple(converter, value, kind)
    )
    converter.register_structure_hook_func(lambda kind: kind == _PAIRS, lambda value, _: _pairs(converter, value))
    converter.register_structure_hook_func(lambda kind: kind == ARGUMENTS, lambda value, _: _arguments(value))
    converter.register_unstructure_hook_func(lambda kind: kind in (_PAIRS, ARGUMENTS), _mapping)
    return converter


def _class_hook(converter: Any, kind: Any) -> Any:
    """Check bounds with each field: the class itself would stop at its first one, and say nothing if another field has a wrong type."""
    from cattrs.gen import make_dict_structure_fn, override

    def checked(value: Any, kind: Any, *, checks: Any) -> Any:
        made = converter.structure(value, kind)
        check_bounds(made, checks)
        return made

    checks = {field.name: field.metadata["checks"] for field in fields(kind) if field.metadata.get("checks")}
    hooks = {name: override(struct_hook=partial(checked, checks=each)) for name, each in checks.items()}
    return make_dict_structure_fn(kind, converter, **hooks)  # type: ignore[arg-type]  # its options have defaults


def _strict(value: Any, kind: Any, *, name: str) -> Any:
    if type(value) is kind or (kind is float and type(value) is int):
        return kind(value)
    raise ValueError(f"expected {name}")


def _expected(value: Any, choices: Collection[str]) -> str:
    near = get_close_matches(value, choices, n=1) if isinstance(value, str) else []
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"expected {' or '.join(map(repr, choices))}{hint}"


def _unknown_choices(values: Any, choices: Mapping[str, Collection[str]]) -> Iterator[tuple[Place, str]]:
    flat = flatten(values) if isinstance(values, Mapping) else {}
    for path, names in choices.items():
        value = flat.get(path)
        if isinstance(value, str) and value not in names:
            yield tuple(path.split(".")), f"{_expected(value, names)}, got {value!r:.60}"


def _tuple(converter: Any, value: Any, kind: Any) -> Any:
    kinds = get_args(kind)
    if not isinstance(value, list) or (kinds[-1] is not ... and len(value) != len(kinds)):
        raise TypeError("expected a list" if kinds[-1] is ... else f"expected a list of {len(kinds)}")
    if kinds[-1] is ...:
        return tuple(converter.structure(value, list[kinds[0]]))  # type: ignore[valid-type]  # a type made at run time
    return tuple(converter.structure(each, inner) for each, inner in zip(value, kinds, strict=True))


def _pairs(converter: Any, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise TypeError("expected names with values")
    return tuple(converter.structure(value, dict[str, str]).items())


def _arguments(value: Any) -> Any:
    """Check names with plain values: numbers, texts, true or false, null, and lists of them."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError("expected names with values")
    for name, each in value.items():
        if not all(isinstance(part, int | float | str | bool | None) for part in (each if isinstance(each, list) else [each])):
            raise ValueError(f"expected plain values, and {name} has another one")
    return tuple((name, tuple(each) if isinstance(each, list) else each) for name, each in value.items())


def _mapping(pairs: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return {name: list(each) if isinstance(each, tuple) else each for name, each in pairs}


def _mistakes(error: BaseException, place: Place, values: Any, kind: Any, hint: Hint) -> Iterator[tuple[Place, str]]:
    """Walk the tree of cattrs' errors down to the mistakes in single values."""
    from cattrs.errors import AttributeValidationNote, ClassValidationError, ForbiddenExtraKeysError, IterableValidationError

    if type(None) in get_args(kind) and len(get_args(kind)) == 2:  # optional
        kind = next(each for each in get_args(kind) if each is not type(None))
    if has(kind) and not isinstance(values, Mapping):
        yield place, f"expected names with values, got {values!r:.60}"
    elif isinstance(error, ForbiddenExtraKeysError):
        yield from (((*place, name), f"unknown key; {hint(name) or _nearest(name, kind)}") for name in error.extra_fields)
    elif isinstance(error, ClassValidationError | IterableValidationError):
        noted, rest = error.group_exceptions()
        for inner, note in noted:
            name: str | int = note.name if isinstance(note, AttributeValidationNote) else note.index
            if isinstance(name, str) and name not in values:
                yield (*place, name), "a value is needed and there is none"
            else:
                yield from _mistakes(inner, (*place, name), values[name], note.type, hint)
        for inner in rest:
            yield from _mistakes(inner, place, values, kind, hint)
    elif isinstance(error, MlxfpError):  # raised by a class whose values contradict each other
        yield place, str(error)
    elif not has(kind):
        expected = _expected(values, get_args(kind)) if get_origin(kind) is Literal else str(error)
        yield place, f"{expected}, got {values!r:.60}"


def _nearest(name: str, kind: Any) -> str:
    known = [field.name for field in fields(kind)]
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"


def _order(place: Place, values: Any) -> tuple[int, ...]:
    """Return the sort key of a place: positions in the values, with missing names last."""
    if not place:
        return ()
    names = list(values) if isinstance(values, Mapping) else list(range(len(values)))
    return (names.index(place[0]), *_order(place[1:], values[place[0]])) if place[0] in names else (len(names),)


def _named(place: Place, origin: Origin | None) -> str:
    """Return the path of a value and the origin of its setting."""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    where = "" if origin is None else origin(place)
    return f"{path.removeprefix('.') or 'the whole'}{f' ({where})' if where else ''}"
