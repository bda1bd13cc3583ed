"""Checks of the arguments of stages. A wrong argument raises an error when the stage is created, before any row is read."""

import dis
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import wraps
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, Parameter, Signature, formatannotation, signature
from itertools import pairwise
from numbers import Real
from typing import Any, TypeVar, cast, get_origin
from unicodedata import is_normalized, normalize

from attrs import frozen

from mlxfp.support.errors import ArgumentError, ArgumentTypeError, RowIndexError, SchemaError, listed, suggest, unknown_name
from mlxfp.support.foreign_names import argument_hint

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
# Matches the module path in a type name, such as `collections.abc.`. Group 1 matches quoted text, which must stay unchanged.
_MODULES = re.compile(r"('[^']*')|\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])")
_LIMIT = 2**63
# Matches a return type that is a stage, an observer, a collator, or a private class such as _Text.
_MAKES_PART = re.compile(r"'?_[A-Z]|Callable\[\[(Dataset\b|Iterable\[Event\]|Sequence\[Mapping\b)")
_MAKES_DATASET = re.compile(r"'?Dataset\b")
_MAKES_STAGE = re.compile(r"Callable\[\[Dataset\b")

# Maps a column name to a hint for the error raised if the column is missing. The hint names the stage that creates the column.
_MAKERS = {
    "input_ids": "the stage tokenize makes this column from a text column",
    "token_type_ids": "the stage tokenize(pair=...) makes this column from two text columns",
    "segment_ids": "the stage pack makes this column",
    "positions": "the stage pack makes this column",
}


def not_none(**arguments: Any) -> dict[str, Any]:
    """Return the arguments other than None, for checks of optional arguments.

    >>> check_positive(**not_none(length=None, size=3))
    """
    return {name: value for name, value in arguments.items() if value is not None}


def check_integer(**values: object) -> None:
    """Raise `ArgumentTypeError` unless every value is an int (True and False are not)."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise ArgumentTypeError(f"{name} must be an int, got {name}={value!r:.200}.{_integer_hint(name, value)}")


def _integer_hint(name: str, value: object) -> str:
    if _is_dataset(value):
        return f" Pass the dataset to pipe, and call the stage with its settings: fp.pipe(dataset, fp.batch({name}))."
    if name.endswith("_id") and type(value).__name__ == "Tokenizer":
        return f" Pass tokenizer.{name}."
    if name == "warmup" and isinstance(value, float):
        return f" Pass the number of updates: warmup=round({value!r} * steps)."
    return ""


def check_positive(**values: object) -> None:
    """Raise `ArgumentError` or `ArgumentTypeError` unless every value is an int of at least 1."""
    _check_least(1, values)


def check_not_negative(**values: object) -> None:
    """Raise `ArgumentError` or `ArgumentTypeError` unless every value is an int of at least 0."""
    _check_least(0, values)


def _check_least(least: int, values: Mapping[str, Any]) -> None:
    check_integer(**values)
    for name, value in values.items():
        if value < least:
            raise ArgumentError(f"{name} must be at least {least}, got {name}={value!r}.")
        if value >= _LIMIT:
            raise ArgumentError(f"{name} must be below 2**63, got {name}={value!r:.40}. Arrow and NumPy count with 64 bits.")


def check_text(**values: object) -> None:
    """Raise `ArgumentTypeError` unless every value is a string."""
    for name, value in values.items():
        if not isinstance(value, str):
            raise ArgumentTypeError(f"{name} must be a string, got {name}={value!r}.")


def check_callable(**values: object) -> None:
    """Raise `ArgumentTypeError` unless every value is callable."""
    for name, value in values.items():
        if not callable(value):
            raise ArgumentTypeError(f"{name} must be a function, got {name}={value!r:.200}.{_function_hint(value)}")
        # Find a factory that was not called, such as fp.batch in place of fp.batch(2).
        original = getattr(value, "__wrapped__", None)
        if original is not None and _MAKES_PART.match(str(_shown(signature(original).return_annotation))):
            raise ArgumentTypeError(f"{name} is the function {original.__name__} itself, not the result of a call. {_usage(original)}")


def _function_hint(value: object) -> str:
    if _is_dataset(value):
        return " The dataset comes first: fp.pipe(dataset, fp.batch(32))."
    if isinstance(value, list | tuple) and value and all(map(callable, value)):
        return " Pass the functions one by one, with a star before the list: fp.pipe(value, *functions)."
    if isinstance(value, str):
        return f' Write a function of a row: lambda row: row["x"] > 1, or compare a column with fp.filter_by. The text is {value!r:.60}.'
    if type(value).__name__ == "TrainState":
        return " The state comes after the step: fp.fit(step, state, batches)."
    return ""


def _is_dataset(value: object) -> bool:
    return hasattr(value, "source") and hasattr(value, "stages")


def check_returns(**values: Callable[..., Any]) -> None:
    """Raise `ArgumentError` for a Python function that always returns None, for example without a return statement.

    >>> check_returns(predicate=lambda row: row["x"] > 0)
    """
    for name, value in values.items():
        code = getattr(value, "__code__", None)
        if code is None or code.co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR):
            continue
        steps = [step for step in dis.get_instructions(code) if step.opname not in ("NOP", "CACHE", "RESUME")]
        returns = [before for before, step in pairwise(steps) if step.opname == "RETURN_VALUE"]
        if returns and all(step.opname == "LOAD_CONST" and step.argval is None for step in returns):
            raise ArgumentError(f"{name} must return a value, but {name}={value!r:.60} always returns None. Did you forget return?")


def check_choice(choices: Collection[str], **values: object) -> None:
    """Raise `UnknownNameError` unless every value is one of `choices`."""
    for name, value in values.items():
        if value not in choices:
            raise unknown_name(name, str(value), choices)


def check_columns(needed: Collection[str], present: Collection[str], stage: str, *, label: str | None = None, remedy: str = "") -> None:
    """Raise `SchemaError` if a column is missing. `label` is the column of labels, which rows for predictions usually lack.

    `remedy`, with a space at its start, ends the message.
    """
    known = frozenset(present)  # a set is fast to search, and there may be thousands of columns
    missing = [name for name in needed if name not in known]
    if missing:
        columns, are_missing = ("columns", "are missing") if len(missing) > 1 else ("column", "is missing")
        names, have = (listed(map(repr, group)) for group in (missing, present))
        makers = "".join(f" {name}: {_MAKERS[name]}; add the stage before this one." for name in missing if name in _MAKERS)
        unlabelled = " For rows without labels, leave out label=." if label in missing else ""
        raise SchemaError(
            f"{stage} needs the {columns} {names}, which {are_missing}.{suggest(missing[0], present)} Columns: {have}."
            f"{makers}{unlabelled}{remedy}"
        )


def resolve_index(index: Any, count: int, items: str, location: object) -> Any:
    """Return an index, counted from 0, or the range of a slice. Raise `RowIndexError` for an index outside `count` items."""
    try:
        return range(count)[index]
    except IndexError:
        remedy = f"Use an index from {-count} to {count - 1}." if count else "Check the source: an empty dataset has no valid index."
        raise RowIndexError(f"An index is out of range: got [{index}] for {count:,} {items}, in {location!r}. {remedy}") from None


def check_number(**values: object) -> None:
    """Raise `ArgumentTypeError` unless every value is a number (True and False are not)."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Real):
            raise ArgumentTypeError(f"{name} must be a number, got {name}={value!r:.200}.")


def check_types(expected: type | tuple[type, ...], **values: object) -> None:
    """Raise `ArgumentTypeError` unless every value is an instance of `expected`."""
    kinds = expected if isinstance(expected, tuple) else (expected,)
    for name, value in values.items():
        if not isinstance(value, kinds):
            names = " or ".join(kind.__name__ for kind in kinds)
            raise ArgumentTypeError(f"{name} must be {names}, got {type(value).__name__}: {value!r:.80}.")


def as_strings(argument: str, values: object, *, unique: bool = True, empty: bool = True) -> tuple[str, ...]:
    """Convert a collection of strings to a tuple. Raise `ArgumentTypeError` for any other value, including a single string.

    Raise `ArgumentTypeError` for a set, whose order differs between processes. Raise `ArgumentError` for duplicates if `unique` is True,
    and for an empty collection if `empty` is False.
    """
    if isinstance(values, str):
        parts = [part.strip() for part in values.split(",")]
        remedy = f"{parts if all(parts) else [values]}"
        raise ArgumentTypeError(f"{argument} must be a list of strings, got the string {values!r:.60}. Write {remedy:.200}.")
    if isinstance(values, set | frozenset):
        raise ArgumentTypeError(
            f"{argument} must be a list in a fixed order, got {type(values).__name__}. The order of a set differs between processes. "
            f"Write {sorted(map(str, values))!s:.200}."
        )
    if not isinstance(values, Collection):
        raise ArgumentTypeError(f"{argument} must be a list of strings, got {type(values).__name__}: {values!r:.60}.")
    strings = tuple(values)
    check_text(**{f"{argument}[{index}]": value for index, value in enumerate(strings)})
    if not strings and not empty:
        raise ArgumentError(f"{argument} must name at least one column, got none.")
    if unique:
        check_unique({argument: strings})
    return strings


def in_nfc(name: str) -> str:
    r"""Return a name in the Unicode form NFC. In form NFD, the letter é is two characters, as in file names of some archives.

    >>> in_nfc("cafe\u0301") == "caf\u00e9"
    True
    """
    return name if is_normalized("NFC", name) else normalize("NFC", name)


def as_class_names(classes: object) -> tuple[str, ...]:
    """Return names of classes as a tuple. Raises `ArgumentError` for equal names, also in different Unicode forms."""
    names = as_strings("classes", classes)
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(in_nfc(name), name)
        if other != name:
            raise ArgumentError(
                f"classes has two names with the same letters in different Unicode forms: {other!a} and {name!a}. "
                "Remove one name. The remaining name matches values in both forms."
            )
    return names


def check_unique(values: Mapping[str, Collection[str]]) -> None:
    """Raise `ArgumentError` for duplicate names."""
    for name, items in values.items():
        doubled = sorted(item for item, count in Counter(items).items() if count > 1)
        if doubled:
            raise ArgumentError(f"{name} repeats {', '.join(map(repr, doubled))}; each name may appear once.")


def explain_call(function: F) -> F:
    """Decorate a function so that a wrong call raises an error with the correct call.

    For an argument name of another library, such as `num_workers`, the error names the argument of mlxfp.

    >>> @explain_call
    ... def kfold(size, *, count, seed=0):
    ...     return size // count
    >>> kfold(10, n_splits=5)
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentTypeError: kfold() got an unexpected keyword argument 'n_splits'. n_splits is count here. Call it as ...
    """

    @wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        __tracebackhide__ = True  # pytest and IPython omit frames with this local variable from tracebacks
        try:
            return function(*arguments, **named)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:  # True if the body of `function` causes the error
                _name_call(function, error)
                raise
            problem = f"{function.__name__}{str(error).removeprefix(function.__qualname__).partition('. Did you mean')[0]}."
        except ArgumentError as error:
            _name_call(function, error)
            raise
        message = " ".join([problem, *_data_hint(function, arguments), *_hints(function, named), _usage(function)])
        raise ArgumentTypeError(message)

    wrapper.__signature__ = _as_shown(signature(function))  # type: ignore[attr-defined]  # shown by `?` and help()
    return cast("F", wrapper)


def _name_call(function: Callable[..., Any], error: Exception) -> None:
    """Begin the message about an argument of a source, stage, observer or collator with the name of the called function."""
    original, message = signature(function), str(error)
    result = str(_shown(original.return_annotation))
    argument = re.match(r"\w*", message)
    is_about_argument = isinstance(error, ArgumentError | ArgumentTypeError) and argument is not None and argument[0] in original.parameters
    if is_about_argument and (_MAKES_PART.match(result) or _MAKES_DATASET.match(result)):
        error.args = (f"{function.__name__}: {message}",)


def explain_class(kind: type[T]) -> type[T]:
    """Decorate an attrs class so that an unknown argument of the constructor raises an error with the known arguments.

    >>> @explain_class
    ... @frozen
    ... class Size:
    ...     hidden_size: int
    >>> Size(d_model=3)
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentTypeError: Size has no argument 'd_model'. d_model is hidden_size here. Arguments: hidden_size.
    """
    changed: Any = kind
    original, known = changed.__init__, list(signature(kind).parameters)

    @wraps(original)
    def explained(self: Any, *arguments: Any, **named: Any) -> None:
        unknown = next((name for name in named if name not in known), None)
        if unknown is not None:
            hint = argument_hint(unknown, known) or suggest(unknown, known).strip()
            hint = f" {hint}" if hint else ""
            raise ArgumentTypeError(f"{kind.__name__} has no argument {unknown!r}.{hint} Arguments: {listed(known)}.")
        original(self, *arguments, **named)

    changed.__init__ = explained
    return kind


@frozen(repr=False)
class _Shown:
    """Annotation shown without module paths, such as Callable for collections.abc.Callable. The text is computed lazily, by `repr`."""

    annotation: Any

    def __repr__(self) -> str:
        return _MODULES.sub(lambda match: match[1] or "", formatannotation(self.annotation))


def _as_shown(original: Signature) -> Signature:
    parameters = [parameter.replace(annotation=_shown(parameter.annotation)) for parameter in original.parameters.values()]
    return original.replace(parameters=parameters, return_annotation=_shown(original.return_annotation))


def _shown(annotation: Any) -> Any:
    return annotation if annotation is Parameter.empty else _Shown(annotation)


def _hints(function: Callable[..., Any], named: Collection[str]) -> Iterator[str]:
    known = signature(function).parameters
    for name in named:
        if name not in known:
            yield from filter(None, [argument_hint(name, known) or suggest(name, known).strip()])


def _data_hint(function: Callable[..., Any], arguments: Sequence[object]) -> Iterator[str]:
    """Yield a hint if a dataset was passed to a function that returns a stage, such as `batch`. The hint shows the call with `pipe`."""
    makes_stage = _MAKES_STAGE.match(str(_shown(signature(function).return_annotation)))
    if makes_stage and any(map(_is_dataset, arguments)):
        yield f"Call the function with settings only, and pass the dataset to pipe: fp.pipe(dataset, fp.{function.__name__}(...))."


def _usage(function: Callable[..., Any]) -> str:
    parameters = signature(function).parameters.values()
    needed = [parameter for parameter in parameters if parameter.default is Parameter.empty]
    written = [parameter.name if parameter.kind is not Parameter.KEYWORD_ONLY else f"{parameter.name}=..." for parameter in needed]
    others = [parameter.name for parameter in parameters if parameter not in needed]
    lists = [parameter.name for parameter in needed if get_origin(parameter.annotation) is Sequence]
    list_note = f", where {lists[0]} is a list" if lists else ""
    optional_note = f"; optional arguments: {', '.join(others)}" if others else ""
    return f"Call it as {function.__name__}({', '.join(written)}){list_note}{optional_note}."


def check_utf8(path: str | os.PathLike[str], what: str) -> None:
    """Raise `ArgumentError` for a path that is not UTF-8, because Arrow and JSON cannot store such a path."""
    text = os.fspath(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        shown = repr(os.fsencode(text))[1:]
        raise ArgumentError(f"The name of a {what} is not UTF-8: got {shown}. Rename the {what}: mv ${shown} NEW_NAME.") from None
