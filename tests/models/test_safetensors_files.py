"""Heads of safetensors files that declare what is not there are refused before MLX makes arrays of them."""

import json
import struct
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.models.folders import read_weights
from mlxfp.models.safetensors_files import check_head
from mlxfp.support.errors import CheckpointError

FOUR = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}


def packed(head: Any, data: bytes = bytes(16), *, length: int | None = None) -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


HOSTILE = {
    "a head longer than the file": (packed({"a": FOUR}, length=2**62), "the declared header size is 4,611,686,018,427,387,904 bytes"),
    "a head longer than any": (packed({"a": FOUR}, length=2**64 - 1), "the declared header size is 18,446,744,073,709,551,615 bytes"),
    "no head": (b"abc", "the declared header size is 6,513,249 bytes, but the file has 3 bytes"),
    "nothing": (b"", "the declared header size is 0 bytes, but the file has 0 bytes"),
    "a head that is no object": (packed([FOUR]), "the header is list, not an object"),
    "a head that is no JSON": (packed(b"{nope"), "Expecting property name"),
    "a head nested without end": (packed(b'{"a":' * 100_000), "the header is nested too deeply"),
    "an array of nothing": (packed({"a": None}), "the array 'a' has no known dtype"),
    "an unknown dtype": (packed({"a": {**FOUR, "dtype": "Q9"}}), "the array 'a' has no known dtype"),
    "a dtype that is a list": (packed({"a": {**FOUR, "dtype": ["F32"]}}), "the array 'a' has no known dtype"),
    "a shape below zero": (packed({"a": {**FOUR, "shape": [-4]}}), r"the array 'a' has an impossible shape, \[-4\]"),
    "a shape of fractions": (packed({"a": {**FOUR, "shape": [4.5]}}), "the array 'a' has an impossible shape"),
    "a shape of truths": (packed({"a": {**FOUR, "shape": [True]}}), "the array 'a' has an impossible shape"),
    "a shape beyond 32 bits": (
        packed({"a": {**FOUR, "shape": [2**32, 2**32], "data_offsets": [0, 0]}}),
        "the array 'a' has an impossible shape",
    ),
    "a product beyond 64 bits": (
        packed({"a": {**FOUR, "shape": [2**30] * 4, "data_offsets": [0, 0]}}),
        "the array 'a' has 0 bytes, which does not match its shape .* and its dtype F32",
    ),
    "a place beyond the file": (
        packed({"a": {**FOUR, "data_offsets": [8, 24]}}),
        r"the array 'a' has the data offsets \[8, 24\], but the file has 16 bytes",
    ),
    "a place before the file": (
        packed({"a": {**FOUR, "data_offsets": [-16, 0]}}),
        r"the array 'a' has the data offsets \[-16, 0\], but the file has 16 bytes",
    ),
    "a place that ends before it begins": (
        packed({"a": {**FOUR, "data_offsets": [16, 0]}}),
        r"the array 'a' has the data offsets \[16, 0\]",
    ),
    "three ends": (packed({"a": {**FOUR, "data_offsets": [0, 8, 16]}}), "the array 'a' has the data offsets"),
    "a size that is not the shape's": (
        packed({"a": {**FOUR, "shape": [5]}}),
        r"the array 'a' has 16 bytes, which does not match its shape \[5\] and its dtype F32",
    ),
    "two arrays in one place": (packed({"a": FOUR, "b": FOUR}), "the arrays 'a' and 'b' overlap"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_head_is_refused(name, tmp_path):
    data, reason = HOSTILE[name]
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(
        CheckpointError, match=rf"model\.safetensors is not a safetensors file, or is damaged: {reason}.*write the file again\."
    ):
        read_weights(tmp_path)
    with pytest.raises(CheckpointError, match=rf"model\.safetensors is not a checkpoint, or is damaged: {reason}"):
        fp.load_state(tmp_path / "model.safetensors", fp.TrainState({"a": mx.zeros(4)}, {}, {}, 0, 0))


DTYPES = ("bool_", "uint8", "int8", "uint16", "int16", "float16", "bfloat16", "uint32", "int32", "float32", "uint64", "int64", "complex64")


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_mlx_writes_is_read(dtype, tmp_path):
    arrays = {"a": mx.ones((3, 2)).astype(getattr(mx, dtype)), "b": mx.array(1).astype(getattr(mx, dtype)), "empty": mx.zeros((0, 3))}
    mx.save_safetensors(str(tmp_path / "model.safetensors"), arrays, {"format": "pt"})
    check_head(tmp_path / "model.safetensors")
    assert {name: array.shape for name, array in read_weights(tmp_path).items()} == {"a": (3, 2), "b": (), "empty": (0, 3)}


_ODD = st.sampled_from([None, True, 0, -1, 1, 3, 2**31, 2**63, 2**64, 1e300, "", "F64", "F16", [], [0, 0], [2, 2], [0, 2**40], {}])


@given(st.sampled_from(["dtype", "shape", "data_offsets"]), _ODD | st.lists(st.integers(-1, 40), max_size=3), st.binary(max_size=40))
def test_a_changed_head_is_read_or_refused(tmp_path_factory, key, value, data):
    folder = tmp_path_factory.getbasetemp()
    (folder / "model.safetensors").write_bytes(packed({"a": {**FOUR, key: value}, "b": {**FOUR, "data_offsets": [16, 32]}}, data))
    try:
        found = read_weights(folder)
    except CheckpointError:
        return
    assert sum(array.nbytes for array in found.values()) <= len(data)


@pytest.mark.parametrize(
    "rest",
    [b"[" * 100_000, b'{"a":' * 100_000, b'{"format": "mlxfp.state", "version": 3, "step": 1e999, "seed": 0}', b"[]", b"null", b'"x"'],
)
def test_hostile_metadata_of_a_checkpoint_are_refused(rest, tmp_path):
    state = fp.TrainState({"a": mx.zeros(4)}, {}, {}, 0, 0)
    head = {"__metadata__": {"mlxfp": rest.decode()}, "params.a": FOUR}
    (tmp_path / "last.safetensors").write_bytes(packed(head))
    with pytest.raises(CheckpointError, match=r"last\.safetensors is not a checkpoint, or is damaged"):
        fp.load_state(tmp_path / "last.safetensors", state)
    fp.save_state(tmp_path / "last.safetensors", state)
    assert fp.load_state(tmp_path / "last.safetensors", state).state == state
