"""Batches in cache: any arrays come back as they were, in a layout that Arrow specifies; what cannot be kept is said."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import mlxfp as fp
from mlxfp.collators.stacking import to_batch, to_chunk
from mlxfp.support.errors import ArgumentError, DataError, PipelineError
from mlxfp.testing.comparing import same

DTYPES = [mx.bool_, mx.uint8, mx.uint16, mx.uint32, mx.uint64, mx.int8, mx.int16, mx.int32, mx.int64, mx.float16, mx.bfloat16, mx.float32]
ROWS = fp.from_examples([{"x": i} for i in range(10)])


@st.composite
def values(draw: Any) -> Any:
    if draw(st.booleans()):
        return tuple(draw(st.lists(st.text(), max_size=4)))
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    bits = mx.array(draw(arrays.arrays(np.uint32, shape)))
    dtype = draw(st.sampled_from([*DTYPES, mx.complex64]))
    if dtype == mx.complex64:
        return bits.view(mx.float32) + 1j * bits.astype(mx.float32)
    return bits.view(dtype) if dtype.size == 4 else bits.astype(dtype)


@given(st.dictionaries(st.text(), values(), max_size=4))
def test_any_batch_comes_back_as_it_was_through_a_file(made: dict[str, Any]):
    row = to_chunk(made, None)
    out = pa.BufferOutputStream()
    with pa.ipc.new_file(out, row.schema) as writer:
        writer.write_batch(row)
        writer.write_batch(to_chunk(made, row.schema))
    reader = pa.ipc.open_file(out.getvalue())
    for place in range(2):
        found = to_batch(reader.get_batch(place))
        assert same(found, made)
        assert {name: getattr(value, "dtype", None) for name, value in found.items()} == {
            name: getattr(value, "dtype", None) for name, value in made.items()
        }


def squares(examples: Any) -> dict[str, Any]:
    x = examples.column("x").to_numpy()  # MLX makes arrays of Arrow's in a way that pyarrow 26 warns about
    return {"x": mx.array(x) ** 2, "mean": mx.array(x).mean(), "names": tuple(map(str, x.tolist()))}


def test_another_process_reads_the_batches_that_one_made(tmp_path: Path):
    script = tmp_path / "batches.py"
    script.write_text(
        "import sys\n"
        "import mlx.core as mx\n"
        "import mlxfp as fp\n"
        "def tens(examples):\n"
        "    print('made', file=sys.stderr)\n"
        "    return {'x': mx.array(examples.column('x').to_numpy()) * 10}\n"
        "rows = fp.from_examples([{'x': i} for i in range(5)])\n"
        f"kept = fp.pipe(rows, fp.shuffle(seed=0), fp.batch(2), fp.collate(tens), fp.cache({str(tmp_path / 'kept')!r}))\n"
        "print([each['x'].tolist() for each in kept], len(kept))\n"
    )
    first, second = (subprocess.run([sys.executable, script], capture_output=True, text=True, check=True) for _ in range(2))
    assert first.stdout == second.stdout
    assert (first.stderr.count("made"), second.stderr.count("made")) == (3, 0)


def test_plain_pyarrow_reads_the_tensors(tmp_path: Path):
    list(fp.pipe(ROWS, fp.batch(4), fp.collate(squares), fp.cache(tmp_path)))
    file = next(tmp_path.iterdir()) / "part-00000.arrow"
    table = pa.ipc.open_file(str(file)).read_all()
    assert table["x"].to_pylist()[2] == {"data": [64, 81], "shape": [2]}
    assert table["names"].to_pylist()[2] == ["8", "9"]
    assert "arrow.variable_shape_tensor" in f"{table.schema}"


def test_rows_of_a_step_are_found_behind_batches_in_a_cache(tmp_path: Path):
    made = fp.pipe(ROWS, fp.shuffle(seed=0), fp.batch(4), fp.collate(squares))
    kept = fp.pipe(made, fp.cache(tmp_path))
    list(kept)
    for step in range(3):
        assert [origin.row for origin in fp.inspect.row_origins(kept, step)] == [
            origin.row for origin in fp.inspect.row_origins(made, step)
        ]
    assert "names: ('3',)\ncache(path=" in repr(fp.inspect.trace_row(kept, 3))


def test_joined_batches_and_none_at_all_are_kept(tmp_path: Path):
    one, other = fp.pipe(ROWS, fp.batch(4), fp.collate(squares)), fp.pipe(ROWS, fp.batch(7), fp.collate(squares))
    kept = fp.pipe(fp.concat([one, other]), fp.cache(tmp_path / "joined"))
    assert same(list(kept), [*one, *other])
    assert fp.length(kept) == 5
    assert list(fp.pipe(fp.from_examples([{"x": 1}]), fp.batch(2, drop_last=True), fp.collate(squares), fp.cache(tmp_path / "none"))) == []


def test_batches_of_several_kinds_are_refused_and_nothing_is_left(tmp_path: Path):
    def growing(examples: Any) -> dict[str, mx.array]:
        return {"x": mx.zeros((1,) * len(examples))}

    kept = fp.pipe(ROWS, fp.batch(4), fp.collate(growing), fp.cache(tmp_path))
    with pytest.raises(
        ArgumentError, match=r"All batches of a cache need the same.*Got x: float32 with 2 axes after x: float32 with 4 axes.*load\(\)"
    ):
        list(kept)
    assert list(tmp_path.iterdir()) == []


def test_batches_of_a_stage_of_ones_own_are_refused_with_what_to_do(tmp_path: Path):
    @frozen(repr=False)
    class Sums(fp.Stage):
        accepts = frozenset({"groups"})
        emits = "batches"

        def step(self, state: Any, chunk: Any) -> Any:
            return state, ({"rows": mx.array(chunk.num_rows)},)

    with pytest.raises(PipelineError, match=r"cache cannot store the batches of sums\(\).*use load\(\)"):
        list(fp.pipe(ROWS, fp.batch(4), Sums(), fp.cache(tmp_path)))


def test_a_damaged_file_is_named(tmp_path: Path):
    kept = fp.pipe(ROWS, fp.batch(4), fp.collate(squares), fp.cache(tmp_path))
    list(kept)
    file = next(tmp_path.iterdir()) / "part-00000.arrow"
    row = pa.ipc.open_file(pa.py_buffer(file.read_bytes())).get_batch(0)
    x = getattr(row.column("x"), "storage", row.column("x"))
    shape = pa.array([[9]], pa.list_(pa.int32(), 1))
    field = pa.field(
        "x", x.type, metadata={"mlx": "int64", "ARROW:extension:name": "arrow.variable_shape_tensor", "ARROW:extension:metadata": "{}"}
    )
    wrong = row.set_column(0, field, pa.StructArray.from_arrays([x.field("data"), shape], fields=list(x.type)))
    file.unlink()  # not overwritten: it may still be mapped
    with pa.OSFile(str(file), "wb") as out, pa.ipc.new_file(out, wrong.schema) as writer:
        writer.write_batch(wrong)
    (manifest := file.parent / "manifest.json").write_text(re.sub(r'"bytes": \d+', f'"bytes": {file.stat().st_size}', manifest.read_text()))
    with pytest.raises(DataError, match=r"The cache .* cannot be read: the SHA-256 hash of .* differs.*Delete this folder"):
        list(fp.pipe(ROWS, fp.batch(4), fp.collate(squares), fp.cache(tmp_path)))
