"""What an error in a user's function says: the row and the example, the stage, the source; also where rows are taken by number."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mlxfp as fp
from mlxfp.core.chunks import number_rows
from mlxfp.data.rows.calling import call
from mlxfp.data.rows.map_filter import filter, flat_map, map

FLOATS = pa.schema({"y": pa.float64()})


def inverse(row):
    return {"y": 1 / (row["x"] - 7)}


def failing(row):
    return inverse(row)["y"] > 0


def notes(dataset, *, epoch=0):
    with pytest.raises(ZeroDivisionError) as caught:
        list(fp.iterate(dataset, epoch=epoch))
    return caught.value.__notes__


class InThreads:
    """A stage whose work threads share, and that prints as the stage."""

    def __init__(self, stage):
        self.stage = stage

    def __call__(self, dataset):
        return fp.prefetch(1, workers=2)(self.stage(dataset))

    def __repr__(self):
        return repr(self.stage)


STAGES = {
    "map": map(inverse, schema=FLOATS),
    "map in threads": InThreads(map(inverse, schema=FLOATS)),
    "filter": filter(failing),
    "flat_map": flat_map(lambda row: [inverse(row)], schema=FLOATS),
}


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
@pytest.mark.parametrize(
    "after",
    [
        fp.compose(),
        fp.prefetch(1),
        fp.compose(fp.shuffle(seed=0), fp.batch(2)),
        fp.compose(fp.shard(1, 2), fp.repeat(2), fp.prefetch(2), fp.prefetch(1)),
    ],
)
def test_an_error_names_row_example_stage_and_source(stage, after, tmp_path):
    (tmp_path / "a.csv").write_text("x\n" + "".join(f"{x}\n" for x in range(10)))
    for rows in (fp.from_table({"x": np.arange(10)}), fp.read_csv(tmp_path / "a.csv")):
        found = notes(fp.pipe(rows, stage, after), epoch=2)
        assert found[:2] == ["on source row 7: {'x': 7}", f"while running {stage!r}"]
        assert found[2] == f"reading from {rows.source!r}, epoch {4 if 'repeat' in repr(after) else 2}"
        assert len(found) == 3


def write_csv(path, values):
    path.write_text("x\n" + "".join(f"{x}\n" for x in values))


def write_jsonl(path, values):
    path.write_text("".join(f'{{"x": {x}}}\n' for x in values))


def write_arrow(path, values):
    with pa.ipc.new_file(path, pa.schema({"x": pa.int64()})) as writer:
        for at in range(0, len(values), 2):
            writer.write_batch(pa.record_batch({"x": values[at : at + 2]}))


def write_parquet(path, values):
    pq.write_table(pa.table({"x": values}), path, row_group_size=2)


@pytest.mark.parametrize("shift", [0, 3, 4, 7, 11])
@pytest.mark.parametrize(
    ("read", "write"),
    [(fp.read_csv, write_csv), (fp.read_jsonl, write_jsonl), (fp.read_arrow, write_arrow), (fp.read_parquet, write_parquet)],
)
def test_of_several_files_the_one_with_the_row_is_named(read, write, shift, tmp_path):
    values = [(x - shift) % 12 for x in range(12)]
    for place, name in enumerate("abc"):
        write(tmp_path / f"{name}.{write.__name__[6:]}", values[4 * place : 4 * place + 4])
    rows = read(str(tmp_path / "*"))
    found = notes(fp.pipe(rows, map(inverse, schema=FLOATS), fp.batch(2)))
    row = values.index(7)
    assert found[:2] == [f"on source row {row}: {{'x': 7}}", f"while running {map(inverse, schema=FLOATS)!r}"]
    assert found[2:] == [f"with rows of {tmp_path / 'abc'[row // 4]}.{write.__name__[6:]}", f"reading from {rows.source!r}, epoch 0"]


def test_a_long_example_is_shortened_and_a_joined_source_is_numbered():
    rows = fp.from_table({"x": np.arange(10), "text": ["word " * 50] * 10})
    both = fp.concat([fp.pipe(rows, filter(lambda row: row["x"] < 5)), rows])
    (first, *_) = notes(fp.pipe(both, map(inverse, schema=FLOATS)))
    assert first.startswith("on source row 7 of joined source 1: {'x': 7, 'text': 'word word")
    assert len(first) < 120


def test_a_row_without_a_number_is_one_of_an_unknown_place():
    with pytest.raises(ZeroDivisionError) as caught:
        map(inverse, schema=FLOATS).apply(pa.record_batch({"x": [7]}))
    assert caught.value.__notes__ == ["on a row: {'x': 7}"]
    chunk = number_rows(pa.record_batch({"x": [7]}), 0, 5)
    with pytest.raises(ZeroDivisionError) as caught:
        map(inverse, schema=FLOATS).apply(chunk)
    assert caught.value.__notes__ == ["on source row 5: {'x': 7}"]
    assert call(failing, {"x": 8}, 0)
