"""The texts of errors, in full: what is wrong, what we got, where, what to do.

Here are those of the core and of the sources in memory; other rooms test theirs beside what raises them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mlxfp.core.chunks import from_rows
from mlxfp.core.cursors import Cursor
from mlxfp.core.describing import schema
from mlxfp.core.examples import Examples
from mlxfp.core.execution import iterate
from mlxfp.core.identity import fingerprint
from mlxfp.core.pipelines import compose, pipe
from mlxfp.data.lengths.batching import batch, unbatch
from mlxfp.data.rows.columns import drop_columns, rename_columns, select_columns
from mlxfp.data.rows.map_filter import filter, map, map_chunks, skip, take
from mlxfp.data.rows.repeating import repeat
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.running.prefetching import prefetch
from mlxfp.data.sources.in_memory import from_examples, from_iterable, from_table
from mlxfp.support.errors import (
    ArgumentError,
    ArgumentTypeError,
    CursorError,
    CursorMismatchError,
    DataError,
    FingerprintError,
    PipelineError,
    SchemaError,
    UnknownNameError,
)
from mlxfp.testing.probing import from_chunks

ROWS: Any = from_table({"x": [1, 2, 3]})
INT = pa.schema({"x": pa.int64()})

Case = tuple[Callable[[], Any], type[Exception], str]
CASES: list[Case] = [
    # arguments
    (lambda: batch(0), ArgumentError, "size must be at least 1, got size=0."),
    (lambda: batch(2.5), ArgumentTypeError, "size must be an int, got size=2.5."),  # type: ignore[arg-type]  # the mistake
    (lambda: batch(True), ArgumentTypeError, "size must be an int, got size=True."),
    (lambda: take(0), ArgumentError, "count must be at least 1, got count=0."),
    (lambda: skip(-1), ArgumentError, "count must be at least 0, got count=-1."),
    (lambda: repeat(0), ArgumentError, "epochs must be at least 1, got epochs=0."),
    (lambda: prefetch(0), ArgumentError, "depth must be at least 1, got depth=0."),
    (lambda: shuffle(seed="a"), ArgumentTypeError, "seed must be an int, got seed='a'."),  # type: ignore[arg-type]  # the mistake
    (lambda: shuffle(seed=0, buffer=0), ArgumentError, "buffer must be at least 1, got buffer=0."),
    (lambda: filter(3), ArgumentTypeError, "predicate must be a function, got predicate=3."),  # type: ignore[arg-type]  # the mistake
    (lambda: select_columns("x"), ArgumentTypeError, "columns must be a list of strings, got the string 'x'. Write ['x']."),
    (lambda: drop_columns([]), ArgumentError, "columns must name at least one column, got none."),
    (lambda: select_columns(["x", "x"]), ArgumentError, "columns repeats 'x'; each name may appear once."),
    (lambda: rename_columns({}), ArgumentError, "rename_columns needs at least one name, got none."),
    # sources in memory
    (
        lambda: from_examples([{"x": 1}, 5]),  # type: ignore[list-item]  # the mistake
        ArgumentTypeError,
        "Every example must be a mapping of column names to values, got int at index 1: 5.",
    ),
    (
        lambda: from_table([1, 2]),
        ArgumentTypeError,
        (
            "from_table needs a table with __arrow_c_stream__ or a mapping of columns, got list. "
            "Use from_examples for a list of dicts, or from_iterable for an iterable of dicts."
        ),
    ),
    (
        lambda: from_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])),
        SchemaError,
        "Several columns have one name: got 'x' more than once, in the table. Rename the columns.",
    ),
    (lambda: from_table({"__row__": [1]}), SchemaError, "A column has a reserved name: got '__row__', in the table. Rename the column."),
    (lambda: from_table({"x": [1], "y": [1, 2]}), ArgumentError, "The columns of a table must have one length, got {'x': 1, 'y': 2}."),
    (
        lambda: from_iterable(row for row in [{"x": 1}]),
        ArgumentTypeError,
        (
            "from_iterable needs an iterable that can be iterated repeatedly, got the one-pass generator. "
            "Pass a list, or a function as in from_iterable(lambda: (... for ...))."
        ),
    ),
    (
        lambda: from_iterable(5),  # type: ignore[arg-type]  # the mistake
        ArgumentTypeError,
        "from_iterable needs an iterable or a function that returns one, got int.",
    ),
    (
        lambda: list(from_iterable([{"x": 1}, [2]])),  # type: ignore[list-item]  # the mistake
        ArgumentTypeError,
        "Every example must be a mapping of column names to values, got list at index 1: [2].",
    ),
    (
        lambda: from_examples([{"x": 1}, {"x": "a"}]),
        SchemaError,
        (
            "Column 'x' of row 1: 'a' does not fit the type int64 of the rows before it. "
            "Make the values of a column one type, or declare it with schema=."
        ),
    ),
    (
        lambda: from_rows([{"x": 1, "y": 2}], INT, [7]),
        SchemaError,
        (
            "Row 7 has the column 'y', which the schema lacks. Columns: 'x'. "
            "Declare it with schema=, or return the same columns for every row."
        ),
    ),
    (
        lambda: from_examples([{"x": np.zeros((1, 2))}, {"x": None}]),
        DataError,
        "Column 'x' of row 1 is null, and a column of fixed-shape tensors (1, 2) cannot hold nulls.",
    ),
    # pipelines
    (lambda: compose(3), ArgumentTypeError, "argument 1 of compose must be a function, got argument 1 of compose=3."),  # type: ignore[arg-type, call-overload]  # the mistake
    (
        lambda: batch(2)([{"x": 1}]),  # type: ignore[arg-type]  # the mistake
        ArgumentTypeError,
        "batch(size=2) works on a dataset, got list: [{'x': 1}]. Start with a source, as in pipe(from_examples(rows), ...).",
    ),
    (
        lambda: pipe(ROWS, unbatch()),
        PipelineError,
        "unbatch() takes groups, got examples from from_table(3 rows). Put batch(size) before it.",
    ),
    (
        lambda: pipe(ROWS, batch(2), batch(2)),
        PipelineError,
        "batch(size=2) takes examples, got groups from batch(size=2). Move it before batch, or put unbatch() before it.",
    ),
    (
        lambda: pipe(ROWS, batch(2))[0],
        PipelineError,
        "dataset[0] takes examples by number, got groups from batch(size=2). Use it before batch.",
    ),
    (
        lambda: pipe(ROWS, filter(bool))[0],
        PipelineError,
        "dataset[0] needs random access, and filter(predicate=bool) has none. Put load() or cache(path) after it.",
    ),
    (
        lambda: from_chunks([pa.record_batch({"x": [1]})])[0],
        PipelineError,
        "dataset[0] needs random access, and from_chunks([1]) has none. Put load() or cache(path) after it.",
    ),
    (
        lambda: schema(pipe(ROWS, select_columns(["y"]))),
        SchemaError,
        "select_columns needs the column 'y', which is not there. Columns: 'x'.",
    ),
    (
        lambda: schema(pipe(ROWS, rename_columns({"x": "__row__"}))),
        SchemaError,
        "The new name '__row__' in rename_columns is reserved or used by several columns. Choose another name.",
    ),
    (
        lambda: list(pipe(ROWS, map(len))),  # type: ignore[arg-type]  # the mistake
        ArgumentTypeError,
        (
            "The function of map(function=len) must return a mapping, got int for source row 0. "
            'Return a dict of columns, as in {**row, "x": 1}.'
        ),
    ),
    (
        lambda: list(pipe(ROWS, map_chunks(len))),  # type: ignore[arg-type]  # the mistake
        ArgumentTypeError,
        (
            "len must return a pyarrow.RecordBatch, got int, in map_chunks(function=len). "
            "For a data frame write pa.RecordBatch.from_pandas(frame)."
        ),
    ),
    # cursors and identity
    (
        lambda: iterate(pipe(ROWS, batch(2)), next(iterate(ROWS))[1]),
        CursorMismatchError,
        (
            "The cursor belongs to another pipeline. First difference: the cursor has nothing there, the pipeline batch(size=2) as part 2. "
            "Iterate over the pipeline that made the cursor, or start this one without a cursor."
        ),
    ),
    (
        lambda: Cursor.from_bytes(b"{}"),
        CursorError,
        "These bytes are not a cursor: they start with b'{}', not b'MLXFPCUR'. Pass the bytes returned by Cursor.to_bytes().",
    ),
    (lambda: Cursor.from_bytes("{}"), ArgumentTypeError, "A cursor is read from bytes, got str."),  # type: ignore[arg-type]  # the mistake
    (
        lambda: fingerprint(iter("a")),
        FingerprintError,
        (
            "A value of type str_ascii_iterator has no fingerprint: <str_ascii_iterator object>. Use a frozen attrs class or "
            "dataclass, define a method __fingerprint__ that returns an identifying plain value, or create the value inside the "
            "function that uses the value."
        ),
    ),
    (
        lambda: Examples(pa.record_batch({"age": [1]})).column("Age"),
        UnknownNameError,
        "No column is named 'Age'. Did you mean 'age'? Known: age.",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), CASES, ids=[text[:50] for _, _, text in CASES])
def test_the_message_is(call: Callable[[], Any], kind: type[Exception], text: str):
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    found = str(caught.value)
    address = found.find(" at 0x")
    found = found if address < 0 else found[:address] + found[found.index(">", address) :]
    assert found == text
