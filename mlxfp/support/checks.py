"""Checks of arguments, run when a stage is built: a mistake must not wait for the first row."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, formatannotation, signature
from typing import Any, TypeVar, cast, get_origin

from attrs import frozen

from mlxfp.support.errors import ArgumentError, ArgumentTypeError, SchemaError, listed, suggest, unknown_name
from mlxfp.support.foreign_names import argument_hint

F = TypeVar("F", bound=Callable[..., Any])
_MODULES = re.compile(r"('[^']*')|\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])")  # in front of the name of a type; not in the text of a Literal
_MAKES_STAGE = re.compile(r"Callable\[\[Dataset\b")

# What makes a column that users know by its name and need not have in their files.
_MAKERS = {
    "input_ids": "tokenize makes it from a column of text",
    "token_type_ids": "tokenize(pair=...) makes it from two columns of text",
    "segment_ids": "pack makes it",
    "positions": "pack makes it",
}


def check_integer(**values: object) -> None:
    """Raise `ArgumentTypeError` unless every value is an int (True and False are not)."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise ArgumentTypeError(f"{name} must be an int, got {name}={value!r}.")


def check_positive(**values: object) -> None:
    """Raise unless every value is an int of at least 1."""
    check_integer(**values)
    for name, value in values.items():
        if value < 1:  # type: ignore[operator]  # an int, by the line above
            raise ArgumentError(f"{name} must be at least 1, got {name}={value!r}.")


def check_not_negative(**values: object) -> None:
    """Raise unless every value is an int of at least 0."""
    check_integer(**values)
    for name, value in values.items():
        if value < 0:  # type: ignore[operator]  # an int, by the line above
            raise ArgumentError(f"{name} must be at least 0, got {name}={value!r}.")


def check_text(**values: object) -> None:
    """Raise `ArgumentTypeError` unless every value is a string."""
    for name, value in values.items():
        if not isinstance(value, str):
            raise ArgumentTypeError(f"{name} must be a string, got {name}={value!r}.")


def check_callable(**values: object) -> None:
    """Raise `ArgumentTypeError` unless every value can be called."""
    for name, value in values.items():
        if not callable(value):
            raise ArgumentTypeError(f"{name} must be a function, got {name}={value!r}.")


def check_choice(choices: Collection[str], **values: object) -> None:
    """Raise `UnknownNameError` unless every value is one of `choices`."""
    for name, value in values.items():
        if value not in choices:
            raise unknown_name(name, str(value), choices)


def check_columns(wanted: Collection[str], present: Collection[str], stage: str) -> None:
    """Raise `SchemaError` unless every wanted column is present."""
    known = frozenset(present)  # there may be thousands of each
    missing = [name for name in wanted if name not in known]
    if missing:
        plural = "columns" if len(missing) > 1 else "column"
        verb = "are" if len(missing) > 1 else "is"
        names, have = (listed(map(repr, group)) for group in (missing, present))
        makers = "".join(f" {name}: {_MAKERS[name]}; put that before." for name in missing if name in _MAKERS)
        raise SchemaError(
            f"{stage} needs the {plural} {names}, which {verb} not there.{suggest(missing[0], present)} Columns: {have}.{makers}"
        )


def check_types(expected: type | tuple[type, ...], **values: object) -> None:
    """Raise `ArgumentTypeError` unless every value is an instance of `expected`."""
    kinds = expected if isinstance(expected, tuple) else (expected,)
    for name, value in values.items():
        if not isinstance(value, kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise ArgumentTypeError(f"{name} must be {wanted}, got {type(value).__name__}: {value!r:.80}.")


def as_strings(argument: str, values: object, *, unique: bool = True, empty: bool = True) -> tuple[str, ...]:
    """Return an argument that is a list of strings as a tuple; raise for anything else, also for one string.

    A string may appear once unless `unique` is false, and there may be none unless `empty` is false.
    """
    if isinstance(values, str):
        raise ArgumentTypeError(f"{argument} must be a list of strings, got the string {values!r:.60}. Write [{values!r:.60}].")
    if not isinstance(values, Collection):
        raise ArgumentTypeError(f"{argument} must be a list of strings, got {type(values).__name__}: {values!r:.60}.")
    several = tuple(values)
    check_text(**{f"{argument}[{place}]": value for place, value in enumerate(several)})
    if not several and not empty:
        raise ArgumentError(f"{argument} must name at least one column, got none.")
    if unique:
        check_unique({argument: several})
    return several


def check_unique(values: Mapping[str, Collection[str]]) -> None:
    """Raise `ArgumentError` for duplicate names."""
    for name, items in values.items():
        doubled = sorted(item for item, count in Counter(items).items() if count > 1)
        if doubled:
            raise ArgumentError(f"{name} repeats {', '.join(map(repr, doubled))}; each name may appear once.")


def explain_call(function: F) -> F:
    """Make a function say how it is called where a call does not fit its arguments; names of other libraries are answered with ours.

    >>> @explain_call
    ... def kfold(size, *, count, seed=0):
    ...     return size // count
    >>> kfold(10, n_splits=5)
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentTypeError: kfold() got an unexpected keyword argument 'n_splits'. n_splits is count here. Call it as ...
    """

    @wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        __tracebackhide__ = True  # of no interest to who reads a traceback
        try:
            return function(*arguments, **named)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:  # raised by the function itself
                raise
            said = f"{function.__name__}{str(error).removeprefix(function.__qualname__).partition('. Did you mean')[0]}."
        raise ArgumentTypeError(" ".join([said, *_data_hint(function, arguments), *_hints(function, named), _usage(function)]))

    called.__signature__ = _as_shown(signature(function))  # type: ignore[attr-defined]  # what `?` and help() show
    return cast("F", called)


@frozen(repr=False)
class _Shown:
    """An annotation that prints without the modules of its types: Callable, not collections.abc.Callable. It is text only when shown."""

    annotation: Any

    def __repr__(self) -> str:
        return _MODULES.sub(lambda found: found[1] or "", formatannotation(self.annotation))


def _as_shown(found: Signature) -> Signature:
    parameters = [one.replace(annotation=_shown(one.annotation)) for one in found.parameters.values()]
    return found.replace(parameters=parameters, return_annotation=_shown(found.return_annotation))


def _shown(annotation: Any) -> Any:
    return annotation if annotation is Parameter.empty else _Shown(annotation)


def _hints(function: Callable[..., Any], named: Collection[str]) -> Iterator[str]:
    known = signature(function).parameters
    for name in named:
        if name not in known:
            yield from filter(None, [argument_hint(name, known) or suggest(name, known).strip()])


def _data_hint(function: Callable[..., Any], arguments: Sequence[object]) -> Iterator[str]:
    """Say how data get to a stage, where a dataset was given to the function that makes one."""
    makes_stage = _MAKES_STAGE.match(str(_shown(signature(function).return_annotation)))
    if makes_stage and any(hasattr(each, "source") and hasattr(each, "stages") for each in arguments):
        yield f"Settings alone make a stage, and pipe gives it the data: fp.pipe(dataset, fp.{function.__name__}(...))."


def _usage(function: Callable[..., Any]) -> str:
    parameters = signature(function).parameters.values()
    needed = [one for one in parameters if one.default is Parameter.empty]
    written = [one.name if one.kind is not Parameter.KEYWORD_ONLY else f"{one.name}=..." for one in needed]
    others = [one.name for one in parameters if one not in needed]
    lists = [one.name for one in needed if get_origin(one.annotation) is Sequence]
    where = f", where {lists[0]} is a list" if lists else ""
    more = f"; also by name: {', '.join(others)}" if others else ""
    return f"Call it as {function.__name__}({', '.join(written)}){where}{more}."
