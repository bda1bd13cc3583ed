"""Strict conversion between plain values and frozen classes with cattrs. All mistakes are reported together.

`transform_error` of cattrs gives neither the origin of a value nor a hint, so this module walks the error tree of cattrs.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, Literal, TypeVar, get_args, get_origin

from attrs import fields, fields_dict, has

from mlxfp.support.errors import ConfigError, MlxfpError, nearest
from mlxfp.support.optional import optional
from mlxfp.support.options import ARGUMENTS, check_bounds
from mlxfp.support.yaml_files import KeyPath

T = TypeVar("T")
Origin = Callable[[KeyPath], str]  # maps a path to the origin of its value: a file with line, or the command line
Hint = Callable[[str], str | None]  # returns a hint with the correct path for an unknown key, or None for a key without a hint

_PAIRS = tuple[tuple[str, str], ...]  # type of a mapping that a frozen class stores as pairs of key and value


def structure(  # noqa: PLR0913  # optional arguments are keyword-only
    values: Mapping[str, Any],
    kind: type[T],
    *,
    what: str = "the configuration",
    origin: Origin | None = None,
    choices: Mapping[str, Collection[str]] | None = None,
    hint: Hint | None = None,
) -> T:
    """Convert a tree of plain values to an instance of the frozen class `kind`. Error messages call the tree `what`.

    Every value must have the declared type: 3.7, True and "3" are not integers. An integer is accepted as a float. For a field of type
    tuple, the tree contains a list. For a tuple of text pairs, the tree contains a mapping.

    - `choices` maps paths such as `optimizer.name` to the allowed texts.
    - `origin(path)` returns the origin of a value for messages: a file with line, or the command line.
    - `hint(key)` returns a hint for an unknown key, or None. If `hint` returns None, the message shows the nearest known key.
    - `checks` in the metadata of a field are functions. A check returns None for a valid value. For another value, a check returns a text
      that describes valid values.

    Raises `ConfigError` with every mistake: path, origin, expected and received value.

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
        value: T = converter.structure(values, kind)
    except Exception as error:
        cattrs_mistakes = dict(_mistakes(error, (), values, kind, hint or (lambda _: None)))
        if not cattrs_mistakes:  # every value is valid, so the error comes from a bug in the class `kind`
            raise
        cause, mistakes = error, mistakes | cattrs_mistakes
    else:
        if not mistakes:
            return value
    lines = [f"{_named(path, origin)}: {mistakes[path]}" for path in sorted(mistakes, key=lambda path: _order(path, values))]
    count = f"{len(lines)} mistakes" if len(lines) > 1 else "A mistake"
    listed_mistakes = "".join(f"\n  {line}" for line in lines)
    raise ConfigError(f"{count} in {what}:{listed_mistakes}") from cause


def unstructure(value: Any) -> dict[str, Any]:
    """Return a frozen class instance as a tree of plain values. `structure` converts the tree to an equal value.

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
    """Return the values of a tree by path, for example `training.epochs`."""
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
    """Check the bounds of each field separately, so that all mistakes are reported. The class itself would stop at the first mistake."""
    from cattrs.gen import make_dict_structure_fn, override

    def checked(value: Any, kind: Any, *, checks: Any) -> Any:
        structured = converter.structure(value, kind)
        check_bounds(structured, checks)
        return structured

    checks = {field.name: field.metadata["checks"] for field in fields(kind) if field.metadata.get("checks")}
    hooks = {name: override(struct_hook=partial(checked, checks=field_checks)) for name, field_checks in checks.items()}
    return make_dict_structure_fn(kind, converter, **hooks)  # type: ignore[arg-type]  # all options have defaults


def _strict(value: Any, kind: Any, *, name: str) -> Any:
    if type(value) is kind or (kind is float and type(value) is int):
        return kind(value)
    raise ValueError(f"expected {name}")


def _expected(value: Any, choices: Collection[str]) -> str:
    near = nearest(value, choices) if isinstance(value, str) else None
    hint = "" if near is None else f" (did you mean {near!r}?)"
    parts = " or your own part as module:name" if "module:name" in choices else ""
    return f"expected {' or '.join(map(repr, choices))}{parts}{hint}"


def _unknown_choices(values: Any, choices: Mapping[str, Collection[str]]) -> Iterator[tuple[KeyPath, str]]:
    flat = flatten(values) if isinstance(values, Mapping) else {}
    for path, names in choices.items():
        value = flat.get(path)
        if isinstance(value, str) and value not in names:
            yield tuple(path.split(".")), f"{_expected(value, names)}, got {value!r:.60}"


def _tuple(converter: Any, value: Any, kind: Any) -> Any:
    kinds = get_args(kind)
    if not isinstance(value, list) or (kinds[-1] is not ... and len(value) != len(kinds)):
        raise TypeError("expected a list" if kinds[-1] is ... else f"expected a list of {len(kinds)} values")
    if kinds[-1] is ...:
        return tuple(converter.structure(value, list[kinds[0]]))  # type: ignore[valid-type]  # a type created at run time
    return tuple(converter.structure(element, inner) for element, inner in zip(value, kinds, strict=True))


def _pairs(converter: Any, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise TypeError("expected names with values")
    return tuple(converter.structure(value, dict[str, str]).items())


def _arguments(value: Any) -> Any:
    """Return the (name, value) pairs of a mapping. Values, and elements of lists, must be numbers, texts, booleans or null."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError("expected names with values")
    for name, argument in value.items():
        if not all(isinstance(part, int | float | str | bool | None) for part in (argument if isinstance(argument, list) else [argument])):
            raise ValueError(f"expected numbers, texts, booleans, null, or lists of these, but {name!r} has a value of another type")
    return tuple((name, tuple(argument) if isinstance(argument, list) else argument) for name, argument in value.items())


def _mapping(pairs: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return {name: list(argument) if isinstance(argument, tuple) else argument for name, argument in pairs}


def _mistakes(error: BaseException, path: KeyPath, values: Any, kind: Any, hint: Hint) -> Iterator[tuple[KeyPath, str]]:
    """Yield (path, message) for each wrong value in an error of cattrs. The error of a class contains the errors of its fields."""
    from cattrs.errors import AttributeValidationNote, ClassValidationError, ForbiddenExtraKeysError, IterableValidationError

    if type(None) in get_args(kind) and len(get_args(kind)) == 2:  # a type such as `int | None`
        kind = next(member for member in get_args(kind) if member is not type(None))
    if has(kind) and not isinstance(values, Mapping):
        is_name = path and isinstance(values, str) and "name" in fields_dict(kind)
        named = f". Did you mean the value of {_named((*path, 'name'), None)}?" if is_name else ""
        yield path, f"expected names with values, got {values!r:.60}{named}"
    elif isinstance(error, ForbiddenExtraKeysError):
        yield from (
            ((*path, name), f"unknown key; {hint(name) or hint('_'.join(map(str, (*path, name)))) or _nearest(name, kind)}")
            for name in error.extra_fields
        )
    elif isinstance(error, ClassValidationError | IterableValidationError):
        noted_errors, other_errors = error.group_exceptions()
        for inner, note in noted_errors:
            name: str | int = note.name if isinstance(note, AttributeValidationNote) else note.index
            if isinstance(name, str) and name not in values:
                yield (*path, name), "a value is required"
            else:
                yield from _mistakes(inner, (*path, name), values[name], note.type, hint)
        for inner in other_errors:
            yield from _mistakes(inner, path, values, kind, hint)
    elif isinstance(error, MlxfpError):  # the class rejected values that contradict each other
        yield path, str(error)
    elif not has(kind):
        expected = _expected(values, get_args(kind)) if get_origin(kind) is Literal else str(error)
        yield path, f"{expected}, got {values!r:.60}"


def _nearest(name: str, kind: Any) -> str:
    known = [field.name for field in fields(kind)]
    near = nearest(name, known)
    return f"known: {', '.join(known)}" if near is None else f"did you mean {near!r}?"


def _order(path: KeyPath, values: Any) -> tuple[int, ...]:
    """Return a sort key for the path of a value, to list mistakes in the order of the file. Unknown names come last."""
    if not path:
        return ()
    names = list(values) if isinstance(values, Mapping) else list(range(len(values)))
    return (names.index(path[0]), *_order(path[1:], values[path[0]])) if path[0] in names else (len(names),)


def _named(path: KeyPath, origin: Origin | None) -> str:
    """Return the path of a value as text. The origin of the value follows in brackets, as in "training.epochs (line 7)"."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    source = "" if origin is None else origin(path)
    return f"{text.removeprefix('.') or 'the whole'}{f' ({source})' if source else ''}"
