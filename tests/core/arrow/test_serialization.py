"""Whatever the bytes are, reading a cursor gives a cursor or raises CursorError; nothing in them is executed."""

import json
import pickle
from contextlib import suppress
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.arrow.serialization import pack, unpack
from mlxfp.core.chunks import number_rows, one_chunk
from mlxfp.support.errors import ArgumentTypeError, CursorError
from mlxfp.testing.comparing import difference, same
from mlxfp.testing.strategies import tables


@frozen
class Point:
    x: Any
    y: Any = None


KINDS = {"point": Point}
NUMBERS = st.sampled_from(["?", "i1", "<i4", ">i8", "u8", "f2", "f4", "<f8"])
ARRAYS = st.builds(lambda kind, shape: np.ones(shape, kind), NUMBERS, st.lists(st.integers(0, 2), min_size=1, max_size=2).map(tuple))
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=9) | ARRAYS | tables().map(one_chunk)
KEYS = st.none() | st.booleans() | st.integers() | st.text() | st.tuples(st.integers())
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(KEYS, inner, max_size=3) | st.builds(Point, inner, inner),
    max_leaves=5,
)
ROWS = fp.from_table(pa.table({"x": range(9), "text": [f"é{i}" for i in range(9)], "list": [[1.5] * i for i in range(9)]}))
PIPELINE = fp.pipe(ROWS, fp.shuffle(seed=0, buffer=4), fp.filter(bool), fp.batch(2))
WRITTEN = [cursor.to_bytes() for _, cursor in fp.iterate(PIPELINE)]


def sealed(body: bytes) -> bytes:
    """Put a right head before a body."""
    return b"MLXFPCUR" + (5).to_bytes(2, "little") + blake2b(body, digest_size=16).digest() + body


def handmade(value: Any, *blobs: bytes) -> bytes:
    """Write JSON and blobs as they are, with the right lengths and checksum."""
    text = json.dumps(value).encode()
    return sealed(len(text).to_bytes(4, "little") + text + b"".join(blobs))


def refused(data: bytes) -> str:
    with pytest.raises(CursorError) as caught:
        fp.Cursor.from_bytes(data)
    return str(caught.value)


@given(VALUES)
def test_what_is_written_is_read_back_exactly(value: Any):
    found = unpack(pack(value, KINDS), KINDS)
    assert same(found, value), difference(found, value)


@given(VALUES)
def test_the_same_value_is_written_as_the_same_bytes(value: Any):
    assert pack(value, KINDS) == pack(unpack(pack(value, KINDS), KINDS), KINDS)


def test_schemas_and_numpy_scalars_come_back():
    value = (pa.schema({"x": pa.int8()}), np.int16(3), np.float32("nan"), np.bool_(False), np.uint64(2**64 - 1))
    assert same(unpack(pack(value, {}), {}), value)


@given(st.sampled_from(WRITTEN), st.data())
def test_changing_any_byte_is_noticed(data: bytes, draw: st.DataObject):
    place, flipped = draw.draw(st.integers(0, len(data) - 1)), draw.draw(st.integers(1, 255))
    refused(data[:place] + bytes([data[place] ^ flipped]) + data[place + 1 :])


@given(st.sampled_from(WRITTEN), st.data())
def test_cutting_or_lengthening_is_noticed(data: bytes, draw: st.DataObject):
    refused(data[: draw.draw(st.integers(0, len(data) - 1))])
    refused(data + draw.draw(st.binary(min_size=1, max_size=40)))


@given(st.binary())
def test_no_other_bytes_are_a_cursor(data: bytes):
    refused(data)
    refused(sealed(data))
    refused(sealed(len(data).to_bytes(4, "little") + data))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["tag", "at", "hex", "items", "dtype", "shape", "fields"]), inner, max_size=4)
        | st.builds(
            lambda tag, inner: {"tag": tag, "at": inner, "fields": inner, "items": inner, "shape": inner, "hex": inner, "dtype": "<i4"},
            st.sampled_from(["float", "dict", "bytes", "chunk", "schema", "numbers", "cursor", "snapshot", "division", "nonsense"]),
            inner,
        )
    ),
    max_leaves=6,
)


@given(JSON, st.binary(max_size=30))
def test_no_json_made_by_hand_does_harm(value: Any, blob: bytes):
    refused(handmade(value, blob))
    refused(handmade([[], None, "batches", [], value], blob))
    refused(handmade([[], value, "batches", [], {"tag": "cursor", "fields": [None, 1]}], blob))
    with suppress(CursorError):  # a snapshot of an epoch may come out
        assert fp.Cursor.from_bytes(handmade([[], None, "batches", [], {"tag": "cursor", "fields": [value, 1]}], blob)).to_bytes()


@given(st.sampled_from(WRITTEN), st.data())
def test_changed_bytes_with_a_right_checksum_do_no_harm(data: bytes, draw: st.DataObject):
    body = bytearray(data[26:])
    for _ in range(draw.draw(st.integers(1, 4))):
        body[draw.draw(st.integers(0, len(body) - 1))] = draw.draw(st.integers(0, 255))
    try:
        cursor = fp.Cursor.from_bytes(sealed(bytes(body)))
    except CursorError:
        return
    assert isinstance(cursor.to_bytes(), bytes)
    for state in cursor.base.states or ():
        repr(state)


def snapshot(**fields: Any) -> dict[str, Any]:
    plain = {"epoch": 0, "position": None, "rows": 0, "states": None, "items": 0, **fields}
    return {"tag": "snapshot", "fields": list(plain.values())}


def cursor(owner: Any = (), done: Any = 0, contents: Any = (), **fields: Any) -> bytes:
    return handmade([list(owner), None, "batches", contents, {"tag": "cursor", "fields": [snapshot(**fields), done]}])


@pytest.mark.parametrize(
    "data",
    [
        cursor(owner=[1]),
        cursor(owner=[["a", 1]]),
        cursor(owner=[["a", "b", "c"]]),
        cursor(contents=[1]),
        cursor(contents="text"),
        handmade([[], {"tag": "division", "fields": [1, 2, 3]}, "batches", [], {"tag": "cursor", "fields": [snapshot(), 0]}]),
        cursor(done="1"),
        cursor(done=None),
        cursor(epoch="x"),
        cursor(rows=[]),
        cursor(states=5),
        handmade([[], None, "batches", [], snapshot()]),
        handmade([[], None, "batches", [], {"tag": "cursor", "fields": [snapshot()]}]),
        handmade([[], None, "batches", [], {"tag": "cursor", "fields": [snapshot(), 0, None, 1]}]),
        handmade([[], None, "batches", [], {"tag": ["cursor"], "fields": []}]),
        handmade({"tag": "dict", "items": [[{"tag": "dict", "items": []}, 1]]}),
        sealed((10**6).to_bytes(4, "little") + b"[" * 10**6),
        sealed((2).to_bytes(4, "little") + b'"' + b"\xff"),
    ],
)
def test_what_only_looks_like_a_cursor_is_refused(data: bytes):
    assert "The cursor cannot be read" in refused(data)


def test_a_cursor_made_by_hand_as_we_make_them_is_read():
    assert fp.Cursor.from_bytes(cursor(owner=[["batch(2)", "00"]], epoch=3)).epoch == 3


@pytest.mark.parametrize(
    ("tagged", "words"),
    [
        ({"tag": "numbers", "dtype": "O", "shape": [1], "at": [0, 4]}, "numbers of the type object"),
        ({"tag": "numbers", "dtype": "V4", "shape": [1], "at": [0, 4]}, "numbers of the type"),
        ({"tag": "numbers", "dtype": "<i4", "shape": [2], "at": [0, 4]}, "cannot reshape"),
        ({"tag": "numbers", "dtype": "<i8", "shape": [1], "at": [0, 4]}, "buffer size must be"),
        ({"tag": "chunk", "at": [0, 4]}, "cannot be read: Arrow"),
        ({"tag": "schema", "at": [0, 4]}, "cannot be read: "),
        ({"tag": "float", "hex": "nonsense"}, "invalid hexadecimal"),
    ],
)
def test_a_value_that_cannot_be_is_named(tagged: Any, words: str):
    assert words in refused(handmade([[], tagged], b"abcd"))


class Fatal:
    """Raises when it is unpickled."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("a cursor was unpickled",)


def test_nothing_in_a_cursor_is_unpickled():
    metadata = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickle.dumps(Fatal())}
    chunk = number_rows(pa.record_batch({"x": [1]}), 0, 0).replace_schema_metadata({"pickled": pickle.dumps(Fatal())})
    typed = pa.RecordBatch.from_arrays([pa.array([1])], schema=pa.schema([pa.field("x", pa.int64(), metadata=metadata)]))
    for value in (pickle.dumps(Fatal()), chunk, typed):
        assert unpack(pack(value, {}), {}) is not None


def test_offsets_made_by_hand_that_point_outside_are_refused():
    chunk = pa.record_batch({"text": ["ab", "cd"]})
    data = pack(chunk, {})
    offsets = np.array([0, 2, 4], np.int32).tobytes()
    assert data.count(offsets) == 1
    broken = sealed(data[26:].replace(offsets, np.array([0, 2, 4000], np.int32).tobytes()))
    with pytest.raises(CursorError, match=r"cannot be read: ArrowInvalid"):
        unpack(broken, {})


@pytest.mark.parametrize("value", [pa.record_batch({"text": [1]}), pa.schema({"text": pa.int8()})])
def test_names_of_columns_made_by_hand_that_are_no_text_are_refused(value: Any):
    with pytest.raises(CursorError, match=r"cannot be read: UnicodeDecodeError"):
        unpack(sealed(pack(value, {})[26:].replace(b"text", b"\xffext")), {})


def test_a_stream_without_a_chunk_is_refused():
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, pa.schema({"x": pa.int8()})).close()
    data = sink.getvalue().to_pybytes()
    assert "StopIteration" in refused(handmade([[], {"tag": "chunk", "at": [0, len(data)]}], data))


@pytest.mark.parametrize("value", [object(), {1, 2}, [1], np.array(["a"]), np.array([None]), 1j, Point, b"".join, Point(frozenset())])
def test_what_cannot_be_written_says_what_can(value: Any):
    with pytest.raises(ArgumentTypeError, match=r"A cursor cannot store .* Build states and positions from None, bool, int"):
        pack((value,), KINDS if isinstance(value, Point) else {})


def test_bytes_may_come_as_any_kind_of_buffer():
    expected = fp.Cursor.from_bytes(WRITTEN[0])
    assert fp.Cursor.from_bytes(bytearray(WRITTEN[0])) == fp.Cursor.from_bytes(memoryview(WRITTEN[0])) == expected
    with pytest.raises(ArgumentTypeError, match=r"Cursor.from_bytes needs bytes, got str"):
        fp.Cursor.from_bytes("MLXFPCUR")


def test_each_sort_of_damage_has_its_message():
    good = WRITTEN[0]
    assert "start with b'other by', not b'MLXFPCUR'. Pass the bytes returned by Cursor.to_bytes()." in refused(b"other bytes")
    assert "has version 1, but this mlxfp reads version 5. Use the version" in refused(good[:8] + b"\1\0" + good[10:])
    assert f"The cursor is damaged: the checksum of its {len(good) - 1} bytes is wrong" in refused(good[:-1])
    assert "The cursor is damaged: the checksum of its 12 bytes" in refused(good[:12])


@pytest.mark.parametrize("union", [pa.sparse_union, pa.dense_union])
def test_an_empty_chunk_with_a_union_column_has_a_size(union: Any):
    """Arrow crashed in `nbytes`, so a shuffle with a buffer could not resume."""
    chunk = pa.RecordBatch.from_arrays([pa.nulls(0, union([pa.field("a", pa.int64())]))], names=["x"])
    read = unpack(pack(chunk, {}), {})
    assert (read.schema, read.nbytes) == (chunk.schema, 0)
