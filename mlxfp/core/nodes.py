"""Base classes of pipelines, stages and sources. The repr of a stage or source is the call that creates the stage or source."""

import pickle
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import PurePath
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeVar

import attrs

from mlxfp.support.errors import ArgumentTypeError
from mlxfp.support.optional import optional

if TYPE_CHECKING:  # before Python 3.13, defaults of type variables need typing_extensions
    import typing_extensions

    Item = typing_extensions.TypeVar("Item", default=Mapping[str, Any])  # by default, the items of `Dataset(source)` are examples
else:
    Item = TypeVar("Item")  # The type variable is invariant: type checkers reject a dataset of batches in place of a dataset of examples.

_READERS = {  # maps the suffix of a file to its reader
    **dict.fromkeys((".csv", ".tsv"), "read_csv"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "read_jsonl"),
    **dict.fromkeys((".arrow", ".feather"), "read_arrow"),
    ".parquet": "read_parquet",
    ".tar": "read_tar",
    ".txt": "read_text",
}


class Share(NamedTuple):
    """Dependence of a stage or source on the number of ranks and on the batch size."""

    shards: int  # number of ranks; 0 if the stage or source does not divide rows between ranks
    batch_rows: int  # number of rows per batch; 0 if the stage or source makes no batches of a fixed size
    alone: Any  # the same stage or source for a run with a single rank
    # Function called as position_after(epoch, position, rows). Returns the position of this rank after `rows` more rows.
    position_after: Callable[[int, Any, int], Any] | None = None


class Part:
    """A stage or a source. Lambdas and local functions are pickled by value, with cloudpickle (extra `processes`)."""

    __slots__ = ()

    def __new__(cls, *args: object, **kwargs: object) -> Any:
        """Raise `ArgumentTypeError` for a class that is not an attrs class, because equality, pickling and repr need the fields."""
        if not attrs.has(cls):
            raise ArgumentTypeError(
                f"Stages and sources must be attrs classes, got the plain class {cls.__name__} in module {cls.__module__}. "
                f"Decorate the class with attrs.frozen: write @attrs.frozen(repr=False) above class {cls.__name__}."
            )
        return super().__new__(cls)

    def __copy__(self) -> Any:
        return self  # immutable

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        kind: Any = type(self)
        values = {f.name: getattr(self, f.name) for f in attrs.fields(kind) if f.init}
        local = [name for name, value in values.items() if _is_local(value)]
        if not local:
            return super().__reduce_ex__(protocol)
        needed_by = f"Pickling {self!r}, whose function cannot be imported by name (alternatively, define the function in a module),"
        cloudpickle = optional("cloudpickle", extra="processes", needed_by=needed_by)
        return _rebuilt, (kind, values | {name: cloudpickle.dumps(values[name]) for name in local}, tuple(local))

    def __repr__(self) -> str:
        kind: Any = type(self)
        fields = [f for f in attrs.fields(kind) if f.repr and f.name != "dataset"]
        values = [(f, getattr(self, f.name)) for f in fields]
        arguments = [_argument(f.name, value) for f, value in values if not _same(value, f.default)]
        return f"{label(type(self))}({', '.join(arguments)})"


class Itemless:
    """Base class of single and composed stages. `stage[0]`, `len(stage)` and loops over a stage raise an error with a remedy."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers would otherwise accept `for item in stage`

        def __getitem__(self, index: object) -> NoReturn:
            """Raise `ArgumentTypeError` for `stage[0]`. Python calls this method also for a loop over a stage and for `in`."""
            text = brief(self)
            raise ArgumentTypeError(
                f"A stage is a function and contains no items, got {text} in place of a dataset. Call the stage on a dataset first, as in "
                f"fp.pipe(rows, {text})."
            )

        def __len__(self) -> int:
            """Raise `ArgumentTypeError`."""
            return self[0]

    def __bool__(self) -> bool:
        return True


class Pipeline(Generic[Item]):
    """A source and the stages after the source. `Dataset` is the only subclass.

    Modules use this class in place of `Dataset` if an import of `Dataset` would be circular.
    """

    __slots__ = ()
    source: Any
    stages: tuple[Any, ...]
    level: Any
    endless: Any  # `endless` and `redraws` are defined in `sources.py`
    redraws: Any
    identity: Any  # `identity` and `division` are defined in `identity.py`
    division: Any
    resolved: Any  # see `planning.py`
    plan: Any  # `plan` and `row_segment` are defined in `running/`
    row_segment: Any
    calls: Any  # functions that read rows of the source
    planned_calls: Any  # functions that read rows of the optimized source; unused columns may be missing
    hooks: Any


def _argument(name: str, value: object) -> str:
    if isinstance(value, tuple) and value and all(isinstance(item, Pipeline) for item in value):
        return f"{len(value)} dataset{'s' if len(value) > 1 else ''}"
    return f"{name.lstrip('_')}={brief(value)}"


def label(kind: Any) -> str:
    """Return the public name of a stage or source class."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__.lstrip("_")).lower()


def brief(value: object) -> str:
    """Return a repr of at most 80 characters, without memory addresses. For a function, return its name.

    >>> brief(len), brief([1, 2]), brief(object())
    ('len', '[1, 2]', '<object object>')
    """
    if isinstance(value, partial):  # the repr of a partial contains a memory address
        return f"partial({', '.join(map(brief, (value.func, *value.args)))})"
    kind: Any = type(value)
    plain = f"<{kind.__qualname__} object>" if kind.__repr__ is object.__repr__ else repr(value)
    text = str(getattr(value, "__qualname__", None) or plain).replace("\n", ", ")  # the repr of a schema has one line per column
    return text if len(text) <= 80 else f"{text[:60]}...{text[-16:]}"


def children(part: object) -> tuple[Any, ...]:
    """Return the inner datasets of a source, in order."""
    kind: Any = type(part)
    fields = (getattr(part, f.name) for f in attrs.fields(kind))
    return tuple(d for value in fields for d in (value if isinstance(value, tuple) else (value,)) if isinstance(d, Pipeline))


def flat_parts(dataset: Any) -> Iterator[Any]:
    """Yield the source and all stages of a dataset in the order of `pipe`, including the parts before `shuffle`, `repeat` and `prefetch`.

    A source that joins several datasets is yielded as one part, without the parts of these datasets.

    >>> import mlxfp as fp
    >>> list(flat_parts(fp.pipe(fp.from_examples([{"x": 1}]), fp.shuffle(seed=0), fp.batch(2))))
    [from_examples(1 rows), shuffle(seed=0), batch(size=2)]
    """
    inner = children(dataset.source)
    if len(inner) == 1:
        yield from flat_parts(inner[0])
    yield from dataset.parts


def inner_parts(source: Any) -> tuple[Any, ...]:
    """Return the datasets whose rows a source yields: `traits.read_parts()` if defined, else the datasets among its arguments."""
    parts: tuple[Any, ...] = (source.traits.read_parts or partial(children, source))()
    return parts


def leaves(dataset: Any) -> Iterator[Any]:
    """Yield the sources that read no other dataset, such as files and tables, in the order in which the pipeline joins these sources."""
    inner = inner_parts(dataset.source)
    if not inner:
        yield dataset.source
    for child in inner:
        yield from leaves(child)


def decoders(dataset: Any) -> dict[str, Any]:
    """Return the known tokenizer for each column of token ids. Joined datasets must agree on the tokenizer."""
    inner = [decoders(child) for child in children(dataset.source)]
    names = inner[0] if inner else {}
    common = {name: decoder for name, decoder in names.items() if all(other.get(name) == decoder for other in inner)}
    return common | {name: decoder for stage in dataset.stages for name, decoder in stage.traits.decoders.items()}


def known_length(dataset: Pipeline[Any]) -> int | None:
    """Return the number of items in an epoch if known without reading data, else None."""
    return length_after(dataset, dataset.source.length())


def length_after(dataset: Pipeline[Any], count: int | None) -> int | None:
    """Return the number of items that the stages make from `count` source items, or None if the number is unknown."""
    for stage in dataset.stages:
        count = None if count is None else stage.traits.length(count)
    return count


def check_dataset(dataset: object, stage: object) -> None:
    """Raise `ArgumentTypeError` unless the input of a stage or function is a dataset."""
    if not isinstance(dataset, Pipeline):
        raise ArgumentTypeError(
            f"{brief(stage)} works on a dataset, got {type(dataset).__name__}: {' '.join(repr(dataset).split()):.60}. "
            f"Start with a source, as in pipe({_source_for(dataset)}, ...)."
        )


def _source_for(value: object) -> str:
    """Return code that makes a dataset of a value: a table, the path of a file, or rows."""
    if type(value).__name__ == "DataFrame" or hasattr(value, "__arrow_c_stream__"):
        return "from_table(frame)" if type(value).__name__ == "DataFrame" else "from_table(table)"
    suffixes = PurePath(value).suffixes if isinstance(value, str | PurePath) else []
    return next((f"{_READERS[suffix.lower()]}({str(value)!r})" for suffix in suffixes if suffix.lower() in _READERS), "from_examples(rows)")


def _is_local(value: object) -> bool:
    """Return True for a function that pickle cannot import by name."""
    if not isinstance(value, FunctionType):
        return False
    imported: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        imported = getattr(imported, name, None)
    return imported is not value


def _rebuilt(kind: Any, values: dict[str, Any], local: tuple[str, ...]) -> Any:
    """Unpickle a stage or source from its field values. `local` contains the names of the fields with bytes from cloudpickle."""
    loaded = {name: pickle.loads(value) if name in local else value for name, value in values.items()}  # noqa: S301  # within a pickle
    return kind(**{f.alias: loaded[f.name] for f in attrs.fields(kind) if f.init})


def _same(value: object, default: object) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))
