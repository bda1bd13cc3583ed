"""Plain values to configuration classes and back, with cattrs: strict, and with all mistakes at once."""

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Literal, TypeVar, get_args, get_origin

from attrs import fields, frozen, has

from mlxfp.config.documents import Place
from mlxfp.core._optional import optional
from mlxfp.core.errors import ConfigError

T = TypeVar("T")
Origin = Callable[[Place], str]  # where a value was said: a file with its line, the command line


@frozen
class Mistake:
    """One thing that is wrong with plain values."""

    place: Place
    message: str


def structure(values: Mapping[str, Any], kind: type[T], *, origin: Origin | None = None) -> T:
    """Make a value of a configuration class from a tree of plain values.

    Every value must have its type: 3.7 and True are no integers, and "3" is none either; an integer is a float, too. Raises `ConfigError`
    with every mistake, each with its place, where it was said (`origin`), what was expected and what there is.

    >>> from mlxfp.config.classes import TrainingConfig
    >>> structure({"epochs": 3}, TrainingConfig).epochs
    3
    >>> structure({"epochs": 3.7, "sise": 8, "ema": 2}, TrainingConfig)
    Traceback (most recent call last):
    mlxfp.core.errors.ConfigError: 3 mistakes in the configuration:
      epochs: expected an integer, got 3.7
      sise: no such name. Did you mean 'size'?
      ema: expected below 1, got 2
    """
    try:
        made: T = _converter().structure(values, kind)
    except Exception as error:
        found = {mistake.place: mistake for mistake in (*_mistakes(error, (), values, kind), *_beyond_bounds(values, kind, ()))}
        if not found:
            raise
        mistakes = sorted(found.values(), key=lambda mistake: _order(mistake.place, values))
        lines = [f"\n  {_shown(mistake, origin)}" for mistake in mistakes]
        count = f"{len(mistakes)} mistakes" if len(mistakes) > 1 else "A mistake"
        raise ConfigError(f"{count} in the configuration:{''.join(lines)}") from error
    return made


def unstructure(value: Any) -> dict[str, Any]:
    """Return a configuration as a tree of plain values: `structure` makes the same of it again.

    >>> from mlxfp.config.classes import ScheduleConfig
    >>> unstructure(ScheduleConfig(name="cosine"))
    {'name': 'cosine', 'warmup': 0.1}
    """
    plain: dict[str, Any] = _converter().unstructure(value)
    return plain


@lru_cache(maxsize=1)
def _converter() -> Any:
    converter = optional("cattrs", extra="config", needed_by="a configuration").Converter(forbid_extra_keys=True)
    for kind, name in ((int, "an integer"), (float, "a number"), (bool, "true or false"), (str, "text")):
        converter.register_structure_hook(kind, _strictly(kind, name))
    converter.register_structure_hook_func(_is_choice, _choice)
    converter.register_structure_hook_func(
        _is_optional, lambda value, kind: None if value is None else converter.structure(value, _inner(kind))
    )
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


def _is_choice(kind: Any) -> bool:
    origin: Any = get_origin(kind)
    return origin is Literal


def _is_optional(kind: Any) -> bool:
    return type(None) in get_args(kind) and len(get_args(kind)) == 2


def _inner(kind: Any) -> Any:
    return next(each for each in get_args(kind) if each is not type(None))


def _mistakes(error: BaseException, place: Place, values: Any, kind: Any) -> Iterator[Mistake]:
    """Walk the tree of cattrs' errors down to what is wrong with single values."""
    from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError

    if has(kind) and not isinstance(values, Mapping):
        yield Mistake(place, f"expected names with values, got {_short(values)}")
    elif isinstance(error, ForbiddenExtraKeysError):
        yield from (Mistake((*place, name), _unknown(name, kind)) for name in error.extra_fields)
    elif isinstance(error, ClassValidationError):
        noted, rest = error.group_exceptions()
        for inner, note in noted:
            yield from _mistakes(inner, (*place, note.name), values.get(note.name), note.type)
        for inner in rest:
            yield from _mistakes(inner, place, values, kind)
    elif not has(kind):  # where the class itself refused, a bound was passed: see below
        yield Mistake(place, f"{error}, got {_short(values)}")


def _beyond_bounds(values: Any, kind: Any, place: Place) -> Iterator[Mistake]:
    """Find what the checks of options refuse: cattrs finds it only where every value of the class has its type."""
    for field in fields(kind) if isinstance(values, Mapping) else ():
        value, here = values.get(field.name), (*place, field.name)
        if has(field.type):
            yield from _beyond_bounds(value, field.type, here)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            expected = next((said for check in field.metadata.get("checks", ()) if (said := check(value)) is not None), None)
            if expected is not None:
                yield Mistake(here, f"expected {expected}, got {_short(value)}")


def _unknown(name: str, kind: Any) -> str:
    known = [field.name for field in fields(kind)]
    near = get_close_matches(name, known, n=1)
    return "no such name. " + (f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}.")


def _order(place: Place, values: Any) -> tuple[int, ...]:
    """Return the numbers that sort places as they stand in the values."""
    if not place or not isinstance(values, Mapping) or place[0] not in values:
        return ()
    return (list(values).index(place[0]), *_order(place[1:], values[place[0]]))


def _shown(mistake: Mistake, origin: Origin | None) -> str:
    said = "" if origin is None else origin(mistake.place)
    return f"{'.'.join(mistake.place) or 'the whole'}{f' ({said})' if said else ''}: {mistake.message}"


def _short(value: Any) -> str:
    return f"{value!r:.60}"
