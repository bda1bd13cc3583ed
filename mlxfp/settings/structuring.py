"""Plain values to frozen classes and back, with cattrs: strict, and with all mistakes at once."""

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Literal, TypeVar, get_args, get_origin

from attrs import fields, frozen, has

from mlxfp.core._optional import optional
from mlxfp.core.errors import ConfigError, MlxfpError
from mlxfp.settings.yaml_files import Place

T = TypeVar("T")
Origin = Callable[[Place], str]  # where a value was said: a file with its line, the command line

_PAIRS = tuple[tuple[str, str], ...]  # a mapping as a frozen class keeps it


@frozen
class Mistake:
    """One thing that is wrong with plain values."""

    place: Place
    message: str


def structure(values: Mapping[str, Any], kind: type[T], *, what: str = "the configuration", origin: Origin | None = None) -> T:
    """Make a value of a frozen class from a tree of plain values; `what` they are called in an error.

    Every value must have its type: 3.7 and True are no integers, and "3" is none either; an integer is a float, too. A tuple is a list in
    the tree, and a tuple of pairs of texts names with values. A field may have `checks` in its metadata: functions from a value to what is
    expected instead, or None. Raises `ConfigError` with every mistake, each with its place, where it was said (`origin`), what was
    expected and what there is.

    >>> from attrs import field
    >>> @frozen(kw_only=True)
    ... class Loop:
    ...     epochs: int
    ...     size: int = field(default=8, metadata={"checks": (lambda size: None if size > 0 else "above 0",)})
    >>> structure({"epochs": 3}, Loop)
    Loop(epochs=3, size=8)
    >>> structure({"epochs": 3.7, "sise": 8, "size": 0}, Loop, what="run.yaml")
    Traceback (most recent call last):
    mlxfp.core.errors.ConfigError: 3 mistakes in run.yaml:
      epochs: expected an integer, got 3.7
      sise: no such name. Did you mean 'size'?
      size: expected above 0, got 0
    """
    beyond, converter = [*_beyond_bounds(values, kind, ())], _converter()
    try:
        made: T = converter.structure(values, kind)
    except Exception as error:
        mistakes = [*_mistakes(error, (), values, kind), *beyond]
        if not mistakes:  # a bug in a class
            raise
        raise _all(mistakes, values, what, origin) from error
    if beyond:
        raise _all(beyond, values, what, origin)
    return made


def unstructure(value: Any) -> dict[str, Any]:
    """Return a value of a frozen class as a tree of plain values: `structure` makes the same of it again.

    >>> @frozen
    ... class Loop:
    ...     epochs: int
    ...     parts: tuple[str, ...] = ()
    ...     names: tuple[tuple[str, str], ...] = ()
    >>> unstructure(Loop(3, ("a",), (("b", "c"),)))
    {'epochs': 3, 'parts': ['a'], 'names': {'b': 'c'}}
    """
    plain: dict[str, Any] = _converter().unstructure(value)
    return plain


@lru_cache(maxsize=1)
def _converter() -> Any:
    converter = optional("cattrs", extra="config", needed_by="a file of settings").Converter(forbid_extra_keys=True)
    for kind, name in ((int, "an integer"), (float, "a number"), (bool, "true or false"), (str, "text")):
        converter.register_structure_hook(kind, _strictly(kind, name))
    converter.register_structure_hook_func(_is_choice, _choice)
    converter.register_structure_hook_func(
        _is_optional, lambda value, kind: None if value is None else converter.structure(value, _inner(kind))
    )
    converter.register_structure_hook_func(_is_tuple, lambda value, kind: _tuple(converter, value, kind))
    converter.register_unstructure_hook_func(_is_tuple, lambda value: [converter.unstructure(each) for each in value])
    converter.register_structure_hook_func(_is_pairs, lambda value, _: _pairs(converter, value))
    converter.register_unstructure_hook_func(_is_pairs, dict)
    return converter


def _strictly(kind: Any, name: str) -> Callable[[Any, Any], Any]:
    def hook(value: Any, _: Any) -> Any:
        if type(value) is kind or (kind is float and type(value) is int):
            return kind(value)
        raise ValueError(f"expected {name}")

    return hook


def _choice(value: Any, kind: Any) -> Any:
    choices = get_args(kind)
    if value in choices and isinstance(value, str):
        return value
    near = get_close_matches(value, choices, n=1) if isinstance(value, str) else []
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise ValueError(f"expected {' or '.join(map(repr, choices))}{hint}")


def _tuple(converter: Any, value: Any, kind: Any) -> Any:
    if not isinstance(value, list):
        raise TypeError("expected a list")
    return tuple(converter.structure(value, list[get_args(kind)[0]]))  # type: ignore[misc]  # a type made at run time


def _pairs(converter: Any, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise TypeError("expected names with values")
    return tuple(converter.structure(value, dict[str, str]).items())


def _is_choice(kind: Any) -> bool:
    origin: Any = get_origin(kind)
    return origin is Literal


def _is_optional(kind: Any) -> bool:
    return type(None) in get_args(kind) and len(get_args(kind)) == 2


def _is_tuple(kind: Any) -> bool:
    origin: Any = get_origin(kind)
    return origin is tuple


def _is_pairs(kind: Any) -> bool:
    return bool(kind == _PAIRS)


def _inner(kind: Any) -> Any:
    return next(each for each in get_args(kind) if each is not type(None)) if _is_optional(kind) else kind


def _mistakes(error: BaseException, place: Place, values: Any, said: Any) -> Iterator[Mistake]:
    """Walk the tree of cattrs' errors down to what is wrong with single values."""
    from cattrs.errors import AttributeValidationNote, ClassValidationError, ForbiddenExtraKeysError, IterableValidationError

    kind = _inner(said)
    if has(kind) and not isinstance(values, Mapping):
        yield Mistake(place, f"expected names with values, got {_short(values)}")
    elif isinstance(error, ForbiddenExtraKeysError):
        yield from (Mistake((*place, name), _unknown(name, kind)) for name in error.extra_fields)
    elif isinstance(error, ClassValidationError | IterableValidationError):
        noted, rest = error.group_exceptions()
        for inner, note in noted:
            name: str | int = note.name if isinstance(note, AttributeValidationNote) else note.index
            if isinstance(name, str) and name not in values:
                yield Mistake((*place, name), "a value is needed and there is none")
            else:
                yield from _mistakes(inner, (*place, name), values[name], note.type)
        for inner in rest:
            yield from _mistakes(inner, place, values, kind)
    elif isinstance(error, MlxfpError):  # a class refused what does not go together
        yield Mistake(place, str(error))
    elif not has(kind):  # where the class itself refused, a bound was passed: see below
        yield Mistake(place, f"{error}, got {_short(values)}")


def _beyond_bounds(values: Any, kind: Any, place: Place) -> Iterator[Mistake]:
    """Find what the checks of fields refuse: a class finds it only where all of its values have their types, and at its first one."""
    for field in fields(kind) if has(kind) and isinstance(values, Mapping) else ():
        value, here = values.get(field.name), (*place, field.name)
        yield from _beyond_bounds(value, field.type, here)
        if isinstance(value, int | float) and not isinstance(value, bool):
            expected = next((said for check in field.metadata.get("checks", ()) if (said := check(value)) is not None), None)
            if expected is not None:
                yield Mistake(here, f"expected {expected}, got {_short(value)}")


def _unknown(name: str, kind: Any) -> str:
    known = [field.name for field in fields(kind)]
    near = get_close_matches(name, known, n=1)
    return "no such name. " + (f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}.")


def _all(mistakes: list[Mistake], values: Any, what: str, origin: Origin | None) -> ConfigError:
    """Make the error that lists mistakes, one for each place, in the order of the values."""
    found = sorted({mistake.place: mistake for mistake in mistakes}.values(), key=lambda mistake: _order(mistake.place, values))
    count = f"{len(found)} mistakes" if len(found) > 1 else "A mistake"
    return ConfigError("\n  ".join([f"{count} in {what}:", *(_shown(mistake, origin) for mistake in found)]))


def _order(place: Place, values: Any) -> tuple[int, ...]:
    """Return the numbers that sort places as they stand in the values; what is not there comes last."""
    if not place:
        return ()
    names = list(values) if isinstance(values, Mapping) else list(range(len(values)))
    return (names.index(place[0]), *_order(place[1:], values[place[0]])) if place[0] in names else (len(names),)


def _shown(mistake: Mistake, origin: Origin | None) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in mistake.place)
    said = "" if origin is None else origin(mistake.place)
    return f"{place.removeprefix('.') or 'the whole'}{f' ({said})' if said else ''}: {mistake.message}"


def _short(value: Any) -> str:
    return f"{value!r:.60}"
