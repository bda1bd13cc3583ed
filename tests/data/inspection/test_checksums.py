import datetime as dt
import os
import subprocess
import sys

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError
from mlxfp.testing.probing import from_chunks
from mlxfp.testing.strategies import pipelines, rechunkings, tables


def numbers(count):
    return fp.from_table({"x": np.arange(count)})


@given(dataset=pipelines(), steps=st.integers(1, 5))
def test_how_a_pipeline_runs_changes_no_hash(dataset, steps):
    if list(dataset):
        assert (
            fp.inspect.checksum(dataset, steps=steps)
            == fp.inspect.checksum(dataset, steps=steps)
            == fp.inspect.checksum(fp.prefetch(2)(dataset), steps=steps)
        )


@given(table=tables(min_rows=1, min_columns=1), data=st.data(), steps=st.integers(1, 9))
def test_where_chunks_end_changes_no_hash_of_examples(table, data, steps):
    one, other = (from_chunks(data.draw(rechunkings(table))) for _ in range(2))
    assert (
        fp.inspect.checksum(one, steps=steps)
        == fp.inspect.checksum(other, steps=steps)
        == fp.inspect.checksum(fp.from_table(table), steps=steps)
    )
    assert fp.inspect.checksum(fp.pipe(one, fp.batch(2)), steps=steps) == fp.inspect.checksum(fp.pipe(other, fp.batch(2)), steps=steps)


@given(a=st.lists(st.integers(-3, 3), min_size=1, max_size=4), b=st.lists(st.integers(-3, 3), min_size=1, max_size=4))
def test_other_values_have_another_hash_and_only_the_first_steps_count(a, b):
    one, other = (fp.from_examples([{"x": x} for x in values]) for values in (a, b))
    for steps in (1, 2, 3, 9):
        assert (fp.inspect.checksum(one, steps=steps) == fp.inspect.checksum(other, steps=steps)) == (a[:steps] == b[:steps])
        assert (
            fp.inspect.checksum(fp.pipe(one, fp.batch(1)), steps=steps) == fp.inspect.checksum(fp.pipe(other, fp.batch(1)), steps=steps)
        ) == (a[:steps] == b[:steps])


def test_order_names_types_groups_and_epochs_count():
    rows = numbers(8)
    different = [
        rows,
        fp.shuffle(seed=0)(rows),
        fp.rename_columns({"x": "y"})(rows),
        fp.map(lambda row: {"x": float(row["x"])})(rows),
        fp.batch(2)(rows),
        fp.batch(4)(rows),
        fp.pipe(rows, fp.batch(2), fp.collate(lambda group: {"x": mx.array(group.column("x").to_numpy())})),
        fp.pipe(rows, fp.batch(2), fp.collate(lambda group: {"x": mx.array(group.column("x").to_numpy().astype(np.float32))})),
        fp.pipe(
            rows,
            fp.batch(2),
            fp.collate(lambda group: {"x": mx.array(group.column("x").to_numpy().astype(np.float32)).astype(mx.bfloat16)}),
        ),
        fp.pipe(rows, fp.batch(2), fp.collate(lambda group: {"x": mx.array(group.column("x").to_numpy())[:, None]})),
        fp.pipe(rows, fp.batch(2), fp.collate(lambda group: {"x": mx.array(group.column("x").to_numpy()), "names": ("a", "b")})),
    ]
    assert len({fp.inspect.checksum(dataset, steps=8) for dataset in different}) == len(different)
    shuffled = fp.shuffle(seed=0)(rows)
    assert fp.inspect.checksum(shuffled, steps=8) != fp.inspect.checksum(shuffled, steps=8, epoch=1)
    assert fp.inspect.checksum(fp.pipe(rows, fp.batch(3), fp.unbatch()), steps=8) == fp.inspect.checksum(rows, steps=8)


GOLDEN = """
import datetime as dt
import mlx.core as mx
import numpy as np
import pyarrow as pa
from mlxfp.collators.collating import collate
from mlxfp.data.inspection.checksums import checksum
from mlxfp.core.pipelines import pipe
from mlxfp.data.lengths.batching import batch
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.sources.in_memory import from_table

rows = from_table(pa.table({
    "whole": pa.array([1, None, -3], pa.int16()),
    "real": pa.array([0.5, float("nan"), -0.0]),
    "text": ["é", "", None],
    "flag": [True, False, None],
    "raw": [b"\\x00", b"", None],
    "ids": pa.array([[1, 2], [], None], pa.list_(pa.int32())),
    "nested": [{"a": 1, "b": ["x"]}, {"a": None, "b": []}, None],
    "when": [dt.datetime(2020, 1, 2, 3), None, dt.datetime(1969, 12, 31)],
    "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
    "nothing": pa.nulls(3),
}))
def arrays(group):
    return {"i": mx.arange(3), "f": mx.array([0.5, -0.0]), "h": mx.array([0.5]).astype(mx.bfloat16), "t": ("a", "é"), "b": mx.array(True)}
print(checksum(shuffle(seed=1)(rows), steps=9))
print(checksum(batch(2)(rows), steps=9))
print(checksum(pipe(rows, batch(2), collate(arrays)), steps=9))
"""


def test_hashes_are_the_same_in_every_process_and_for_good():
    for seed in ("0", "1"):
        ran = subprocess.run(
            [sys.executable, "-c", GOLDEN], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}
        )
        assert ran.stdout.split() == [
            "649e6f10809f331c65e33b49034e31e8",
            "ad8e487161d2f9808ddd38962ad1fe2b",
            "959f420ac02d4b8560cbdb40de3995ac",
        ]


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: fp.inspect.checksum([1], steps=1), ArgumentTypeError, "works on a dataset"),
        (lambda: fp.inspect.checksum(numbers(1), steps=0), ArgumentError, "steps must be at least 1, got steps=0."),
        (
            lambda: fp.inspect.checksum(fp.from_table({"x": []}), steps=1),
            DataError,
            "checksum needs at least one item: no item came out of pipe",
        ),
        (
            lambda: fp.inspect.checksum(fp.pipe(numbers(3), fp.filter(lambda row: False)), steps=1),
            DataError,
            "no item came out of .* in epoch 0.",
        ),
        (
            lambda: fp.inspect.checksum(fp.pipe(numbers(3), fp.filter(lambda row: False), fp.batch(2)), steps=1),
            DataError,
            "no item came out of .* in epoch 0.",
        ),
    ],
)
def test_messages(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


def test_a_hash_holds_real_values():
    dates = fp.from_examples([{"x": dt.date(2020, 1, 1)}, {"x": None}], schema=pa.schema({"x": pa.date32()}))
    assert fp.inspect.checksum(dates, steps=2) != fp.inspect.checksum(dates, steps=1)
