"""Chunks of long texts stay small: bytes bound a chunk as well as rows. Arrow allows 2 GiB in a column of a chunk."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.chunks import LARGE, concat_chunks
from mlxfp.data.sources.row_chunks import rows_to_chunks
from mlxfp.errors import DataError

SIZE = 3 << 20  # bytes of a text


def text(number: int) -> dict[str, Any]:
    return {"n": number, "text": f"{number:{SIZE}}"}


def streamed(count: int) -> Any:
    return fp.from_iterable(lambda: map(text, range(count)))


STAGES: dict[str, Callable[[], Any]] = {
    "nothing": lambda: fp.take(10**6),
    "shuffle": lambda: fp.shuffle(seed=0),
    "shuffle with a buffer": lambda: fp.shuffle(seed=0, buffer=60),
    "load and shuffle": lambda: fp.compose(fp.load(), fp.shuffle(seed=0)),
    "map": lambda: fp.map(dict),
    "repeat": lambda: fp.repeat(1),
}


@pytest.mark.parametrize("name", STAGES)
def test_case_e14_chunks_of_long_texts_are_bounded_by_bytes(name: str):
    rows = fp.pipe(streamed(80), STAGES[name]())
    chunks = list(fp.parts.read_all(rows))
    assert sorted(number for chunk in chunks for number in chunk["n"].to_pylist()) == list(range(80))
    assert max(chunk.nbytes for chunk in chunks) <= 2 * LARGE
    cursor = [cursor for _, cursor in fp.iterate(fp.pipe(rows, fp.select_columns(["n"])))][40]
    assert len(list(fp.iterate(fp.pipe(rows, fp.select_columns(["n"])), cursor))) == 39


@settings(max_examples=10)
@given(st.lists(st.sampled_from([1, LARGE]), max_size=8))
def test_rows_of_an_iterable_are_pulled_in_order_and_no_row_early(sizes: list[int]):
    """A long text, shared by all rows, ends a chunk."""
    long, pulled = "x" * LARGE, []

    def rows() -> Iterator[dict[str, Any]]:
        for size in sizes:
            pulled.append(size)
            yield {"n": size, "text": long[:size]}

    schema = pa.schema({"n": pa.int64(), "text": pa.string()})
    chunks = [(chunk, len(pulled)) for chunk in rows_to_chunks(rows(), schema, 0)]
    assert [number for chunk, _ in chunks for number in chunk["n"].to_pylist()] == sizes
    for chunk, count in chunks[:-1]:
        assert chunk["n"][-1].as_py() == LARGE == sizes[count - 1]


@pytest.mark.parametrize("rows_per_file", [None, 4])
def test_case_e14_long_texts_are_written_in_small_files_and_batches(tmp_path: Path, rows_per_file: int | None):
    """Files and batches depend on the rows alone, for a table in one chunk and for an iterable in many chunks."""
    rows = [{"text": letter * LARGE} for letter in "abcdefghi"]
    for name, dataset in (("table", fp.from_examples(rows)), ("stream", fp.from_iterable(lambda: iter(rows)))):
        fp.write(dataset, tmp_path / name, rows_per_file=rows_per_file)
    table, stream = (sorted((tmp_path / name).glob("*.arrow")) for name in ("table", "stream"))
    assert [path.read_bytes() for path in table] == [path.read_bytes() for path in stream]
    for path, count in zip(table, [4, 4, 1] if rows_per_file else [1] * 9, strict=True):
        with pa.ipc.open_file(path) as file:
            assert [file.get_batch(index).num_rows for index in range(file.num_record_batches)] == [1] * count


def test_examples_of_more_than_2_gib_become_several_chunks():
    """The texts share memory, so that only the table has 2.2 GiB."""
    long = "x" * (1 << 28)
    rows = fp.from_examples([{"n": number, "text": long} for number in range(9)])
    assert [row["n"] for row in fp.pipe(rows, fp.select_columns(["n"]))] == list(range(9))
    assert fp.schema(rows) == pa.schema({"n": pa.int64(), "text": pa.string()})


def test_rows_that_do_not_fit_into_one_chunk_are_named():
    long = pa.record_batch({"text": pa.array(["x" * (1 << 28)])})
    with pytest.raises(DataError, match=r"too large for one chunk: 9 rows have 2,4[\d,]+ bytes, and a column holds at most 2 GiB"):
        concat_chunks([long] * 9)
