"""The probe gives exactly the chunks that it was given, and notes what is read."""

import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.core.execution import iterate
from mlxfp.support.errors import ArgumentError
from mlxfp.testing import laws
from mlxfp.testing.probing import from_chunks
from mlxfp.testing.strategies import rechunkings, tables

CHUNKS = [pa.record_batch({"x": [1, 2]}), pa.record_batch({"x": []}, schema=pa.schema({"x": pa.int64()})), pa.record_batch({"x": [3]})]


@given(st.data())
def test_the_probe_obeys_the_laws_of_sources(data: st.DataObject):
    dataset = from_chunks(data.draw(rechunkings(data.draw(tables(min_columns=1)))))
    laws.assert_reads(dataset.source)
    laws.assert_resumable(dataset)
    laws.assert_described(dataset)
    laws.assert_value(dataset)


def test_every_read_is_noted_when_it_happens():
    log: list[int] = []
    items = iterate(from_chunks(CHUNKS, log=log))
    assert log == []
    _, cursor = next(items)
    assert log == [2]
    assert [item for item, _ in items] == [{"x": 2}, {"x": 3}]
    assert log == [2, 0, 1]
    list(iterate(from_chunks(CHUNKS, log=log), cursor))
    assert log == [2, 0, 1, 2, 0, 1]


def test_the_log_is_no_part_of_the_value():
    log = [1]
    assert from_chunks(CHUNKS, log=log) == from_chunks(CHUNKS) == pickle.loads(pickle.dumps(from_chunks(CHUNKS)))
    assert from_chunks(CHUNKS) != from_chunks(CHUNKS[1:])
    assert repr(from_chunks(CHUNKS)) == "pipe(from_chunks([2, 0, 1]))"


def test_chunks_of_several_schemas_or_none_are_refused():
    with pytest.raises(ArgumentError, match=r"from_chunks needs at least one chunk and a single schema, got chunks with the columns \[\]."):
        from_chunks([])
    with pytest.raises(
        ArgumentError, match=r"from_chunks needs at least one chunk and a single schema, got chunks with the columns \[\['x'\], \['y'\]\]."
    ):
        from_chunks([pa.record_batch({"x": [1]}), pa.record_batch({"y": [1]})])
