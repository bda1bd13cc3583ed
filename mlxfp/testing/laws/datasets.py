"""Laws of datasets and sources: a second reading gives the same items, also from a resume position and with random access."""

import copy
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import tee, zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlxfp.core.chunks import KEY, ROW, RecordBatch, Schema, no_rows, visible, with_hidden_of
from mlxfp.core.cursors import Cursor, Snapshot
from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import explain, length, schema
from mlxfp.core.execution import iterate, run, start, take_rows
from mlxfp.core.identity import fingerprint, identify
from mlxfp.core.nodes import Part, flat_parts, known_length
from mlxfp.core.sources import Source, exact_length
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.probing import from_chunks

__tracebackhide__ = True

Transform = Callable[[Dataset[Any]], Dataset[Any]]


def collect(dataset: Dataset[Any], cursor: Cursor | None = None, *, epoch: int = 0) -> Any:
    """Return all items after a cursor, with the hidden columns: a table of examples, or a list of groups or batches.

    >>> import mlxfp as fp
    >>> collect(fp.from_examples([{"x": 1}])).column_names
    ['x', '__row__', '__key__']
    """
    chunks = [chunk for chunk, _ in run(dataset, start(epoch, cursor))]
    if dataset.level == "batches":
        return chunks
    ordered = [with_hidden_of(visible(chunk), chunk) for chunk in chunks]
    kinds = schema(dataset).append(pa.field(ROW, pa.int64())).append(pa.field(KEY, pa.uint64()))
    ordered = [_without_nulls(chunk, kinds) for chunk in ordered]
    for chunk in ordered:
        assert chunk.schema.equals(kinds), f"the schema of {dataset!r} is stated as\n{kinds}\nbut a chunk came out with\n{chunk.schema}"
    return ordered if dataset.level == "groups" else pa.Table.from_batches(ordered or [no_rows(kinds)])


def _without_nulls(chunk: RecordBatch, kinds: Schema) -> RecordBatch:
    """Give each column without nulls the nullability of the same field in the schema `kinds`."""
    if chunk.schema.names != kinds.names:
        return chunk
    columns = zip(chunk.columns, chunk.schema, kinds, strict=True)
    fields = [stated if field.type == stated.type and not column.null_count else field for column, field, stated in columns]
    return pa.RecordBatch.from_arrays(chunk.columns, schema=pa.schema(fields)) if fields else chunk


def unchanged(chunks: Iterable[Any], name: str) -> list[Any]:
    """Return the chunks as a list.

    Raises `AssertionError` if a chunk changes while later chunks are read, for example in a reused buffer.
    """
    pairs = [(chunk, through_bytes(chunk) if isinstance(chunk, pa.RecordBatch) else chunk) for chunk in chunks]
    for index, (chunk, kept) in enumerate(pairs):
        assert_same(chunk, kept, f"{name} does not change chunk {index} after later chunks. Make a new buffer for each chunk")
    return [chunk for chunk, _ in pairs]


def through_bytes(value: Any) -> Any:
    """Convert a state or position to bytes, as a cursor does, and return the decoded value."""
    return Cursor.from_bytes(Cursor(Snapshot(0, value), 0).to_bytes()).base.position


def sampled_indices(count: int, sample: Sequence[int] | None) -> list[int]:
    """Return sorted indices below `count`: first, last, and each number in `sample` modulo `count`. `sample=None` selects all indices.

    >>> sampled_indices(100, [7, 250]), sampled_indices(3, None), sampled_indices(0, [7])
    ([0, 7, 50, 99], [0, 1, 2], [])
    """
    if sample is None or not count:
        return list(range(count))
    return sorted({0, count - 1, *(index % count for index in sample)})


def logged(transform: Transform, chunks: Sequence[RecordBatch]) -> tuple[Dataset[Any], list[int]]:
    """Return the dataset that `transform` makes from `chunks`, and a list that grows by one item for each chunk read."""
    log: list[int] = []
    dataset = transform(from_chunks(chunks, log=log))
    schema(dataset)  # Infer the schema now, because schema inference may read chunks. `log` must count only later reads.
    log.clear()
    return dataset, log


def assert_repeatable(dataset: Dataset[Any], *, epoch: int = 0) -> None:
    """Check that a second iteration gives the same items, even while another iteration is running, and no chunk changes later.

    >>> import mlxfp as fp
    >>> assert_repeatable(fp.from_examples([{"x": 1}, {"x": 2}]))
    """
    assert_same(collect(dataset, epoch=epoch), collect(dataset, epoch=epoch), f"iterating {dataset!r} twice gives the same")
    items = [item for item, _ in iterate(dataset, epoch=epoch)]
    pairs = list(zip_longest(iterate(dataset, epoch=epoch), iterate(dataset, epoch=epoch)))
    for index, side in ((0, "first"), (1, "second")):
        actual = [pair[index][0] for pair in pairs if pair[index] is not None]
        assert_same(actual, items, f"the {side} of two parallel iterations of {dataset!r} gives the same as one alone")
    unchanged((chunk for chunk, _ in run(dataset, start(epoch, None))), repr(dataset))


def assert_value(value: Any) -> None:
    """Check that a copy of a dataset, stage or source (by `deepcopy` or pickle) is equal, with an equal hash, repr and fingerprint.

    >>> import mlxfp as fp
    >>> assert_value(fp.batch(2))
    """
    assert_same_value(copy.deepcopy(value), value)
    try:
        copied = pickle.loads(pickle.dumps(value))  # noqa: S301  # trusted bytes
    except Exception as error:
        raise AssertionError(
            f"{value!r} must be picklable, but pickling raises {type(error).__name__}: {error}. "
            "Define the functions and classes of the object at the top level of a module."
        ) from error
    assert_same_value(copied, value)


def assert_same_value(a: Any, b: Any) -> None:
    """Check that equal values have the same hash, repr and fingerprint, and `!=` is False.

    >>> import mlxfp as fp
    >>> assert_same_value(fp.batch(2), fp.batch(2, drop_last=False))
    """
    assert a == b, f"{a!r} equals {b!r}"
    assert not a != b, f"{a!r} does not differ from {b!r}"  # noqa: SIM202  # this line tests the operator
    try:
        assert hash(a) == hash(b), f"{a!r} has the hash of {b!r}"
    except TypeError as error:
        raise AssertionError(f"{a!r} has no hash: {error}. Store tuples instead of lists, and use an immutable class.") from error
    assert repr(a) == repr(b), f"{a!r} prints as {b!r}"
    assert fingerprint(a) == fingerprint(b), f"{a!r} has the fingerprint of {b!r}"


def assert_told_apart(a: Any, b: Any) -> None:
    """Check that two values that behave differently are unequal and have different fingerprints.

    >>> import mlxfp as fp
    >>> assert_told_apart(fp.batch(2), fp.batch(3))
    """
    assert a != b, f"{a!r} differs from {b!r}"
    assert fingerprint(a) != fingerprint(b), f"{a!r} has a different fingerprint from {b!r}"


def assert_built_lazily(transform: Transform, chunks: Sequence[RecordBatch]) -> None:
    """Check that building, comparing, hashing, printing and fingerprinting a pipeline reads no data.

    >>> import mlxfp as fp
    >>> import pyarrow as pa
    >>> assert_built_lazily(fp.batch(2), [pa.record_batch({"x": [1, 2, 3]})])
    """
    log: list[int] = []
    dataset = transform(from_chunks(chunks, log=log))
    assert not log, f"building {dataset!r} reads nothing, but it read chunks of {log} rows"
    for inspect in (hash, repr, fingerprint, known_length):
        inspect(dataset)
    _ = dataset == copy.copy(dataset), dataset.level, dataset.indexable
    assert not log, f"looking at {dataset!r} reads nothing, but chunks of {log} rows were read"


def assert_prints(part: Part | Dataset[Any], names: Mapping[str, Any]) -> None:
    """Check that the repr of a value is the call that creates the value. Evaluating the repr with `names` gives an equal value.

    >>> import mlxfp as fp
    >>> assert_prints(fp.batch(2), {"batch": fp.batch})
    """
    text = repr(part)
    try:
        value = eval(text, dict(names))  # noqa: S307  # a trusted repr; the law requires evaluation
    except Exception as error:
        raise AssertionError(
            f"the repr {text} is a call that should create an equal value, but the call raises {type(error).__name__}: {error}"
        ) from error
    assert value == part, f"the repr {text} should give an equal value, but the call gives {value!r}"


def assert_described(dataset: Dataset[Any], *, epoch: int = 0) -> None:
    """Check that `schema`, `length`, `level`, `repr` and `explain` agree with the items that an iteration gives.

    >>> import mlxfp as fp
    >>> assert_described(fp.from_examples([{"x": 1}]))
    """
    items = collect(dataset, epoch=epoch)
    for stated in (known_length(dataset), length(dataset)):
        assert stated in (None, len(items)), f"the length of {dataset!r} is stated as {stated}, but {len(items)} items came out"
    text = explain(dataset)
    missing = [part for part in map(repr, flat_parts(dataset)) if part not in repr(dataset) or part not in text]
    assert not missing, f"{dataset!r} and its explanation name every part, but {missing} are missing in\n{text}"
    assert len(identify(dataset)) == len(list(flat_parts(dataset))), f"every part of {dataset!r} has an identity"


def assert_same_items(actual: Dataset[Any], expected: Dataset[Any], *, epoch: int = 0) -> None:
    """Check that two datasets give the same items, with the same source rows and keys.

    >>> import mlxfp as fp
    >>> assert_same_items(fp.from_examples([{"x": 1}]), fp.from_table({"x": [1]}))
    """
    assert actual.level == expected.level, f"{actual!r} gives {actual.level}, not {expected.level}"
    assert_same(collect(actual, epoch=epoch), collect(expected, epoch=epoch), f"{actual!r} gives what {expected!r} gives")


def assert_reads(source: Source, *, epoch: int = 0, after: Sequence[int] | None = None) -> None:
    """Check that a source can continue from the position after any chunk, and that a second reading gives equal chunks.

    After the last position, nothing follows. Reading a chunk does not change earlier chunks. All chunks have the schema of the source. The
    numbers of rows or items add up to the length of the source. Positions can be converted to bytes. The argument `after` lists indices of
    chunks. The law then tests only the positions after these chunks, after the first chunk and after the last chunk.

    >>> import mlxfp as fp
    >>> assert_reads(fp.from_examples([{"x": 1}]).source)
    """
    pairs, same_pairs = tee(source.read(epoch, None))
    chunks = unchanged((chunk for chunk, _ in pairs), repr(source))
    read = [(chunk, position) for chunk, (_, position) in zip(chunks, same_pairs, strict=True)]
    for chunk in () if source.traits.level == "batches" else chunks:
        assert visible(chunk).schema.equals(source.schema()), (
            f"{source!r} states the schema\n{source.schema()}\nbut reads a chunk with\n{chunk.schema}"
        )
    assert_same(_joined(source, source.read(epoch, None)), _joined(source, read), f"reading {source!r} twice gives the same")
    for chunk_count, position in ((index + 1, read[index][1]) for index in sampled_indices(len(read), after)):
        for start_position in (position, through_bytes(position)):
            claim = f"reading {source!r} from position {start_position!r} gives what follows chunk {chunk_count - 1}"
            assert_same(_joined(source, source.read(epoch, start_position)), _joined(source, read[chunk_count:]), claim)
    count = sum(chunk.num_rows for chunk in chunks) if source.traits.level == "examples" else len(chunks)
    for stated in (source.length(), exact_length(source)):
        assert stated in (None, count), f"{source!r} states the length {stated}, but reads {count}"


def assert_random_access(dataset: Dataset[Any], indices: NDArray[np.int64], *, epoch: int = 0) -> None:
    """Check that rows taken by index, int64[N], equal the iterated rows with these indices, including hidden columns.

    >>> import mlxfp as fp
    >>> assert_random_access(fp.from_examples([{"x": 1}, {"x": 2}]), np.array([1, 0, 1]))
    """
    assert dataset.indexable, f"{dataset!r} has random access"
    rows = pa.Table.from_batches([take_rows(dataset, epoch, indices)])
    iterated = collect(dataset, epoch=epoch)
    expected = iterated.take(pa.array(indices))
    assert_same(
        rows.select(expected.column_names), expected, f"taking the rows {indices.tolist()} of {dataset!r} gives the rows of iterating"
    )


def _joined(source: Source, read: Iterable[tuple[Any, Any]]) -> Any:
    """Return the chunks of a source: one table for a source of examples, or a list for a source of groups or batches."""
    chunks = [chunk for chunk, _ in read]
    return pa.Table.from_batches(chunks or [no_rows(source.schema())]) if source.traits.level == "examples" else chunks
