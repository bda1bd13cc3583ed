"""A part of each waveform: one run of samples, at a place that depends on the seed, the epoch and the row alone."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, SchemaError
from mlxfp.testing.laws import (
    assert_prints,
    assert_told_apart,
    assert_value,
)

SIZES = st.lists(st.integers(0, 12), min_size=1, max_size=8)
COLUMNS = {
    "floats": lambda rows: pa.array(rows, pa.list_(pa.float32())),
    "16 bits": lambda rows: pa.array(rows, pa.large_list(pa.int16())),
    "lists of one size": lambda rows: pa.array([row + [0] * (12 - len(row)) for row in rows], pa.list_(pa.float32(), 12)),
    "tensors": lambda rows: pa.FixedShapeTensorArray.from_numpy_ndarray(
        np.array([row + [0] * (12 - len(row)) for row in rows], np.float32).reshape(len(rows), 12)
    ),
}


def sounds(sizes, kind="floats"):
    """Waveforms that count up, each from another number."""
    return pa.table({"waveform": COLUMNS[kind]([[100 * row + place for place in range(size)] for row, size in enumerate(sizes)])})


@given(
    sizes=SIZES,
    length=st.integers(1, 14),
    seed=st.none() | st.integers(0, 9),
    epoch=st.integers(0, 3),
    kind=st.sampled_from(sorted(COLUMNS)),
)
def test_a_part_is_a_run_of_samples(sizes, length, seed, epoch, kind):
    whole = fp.from_table(sounds(sizes, kind))
    cut = [row["waveform"] for row, _ in fp.iterate(fp.pipe(whole, fp.audio.crop_waveforms(length, seed=seed)), epoch=epoch)]
    for row, part in zip(whole, cut, strict=True):
        before = list(row["waveform"])
        assert len(part) == min(len(before), length)
        starts = [start for start in range(len(before) - len(part) + 1) if before[start : start + len(part)] == part]
        assert starts
        assert seed is not None or (len(before) - len(part)) // 2 in starts


def test_every_place_is_as_likely_in_each_epoch_and_the_middle_never_moves():
    rows = fp.from_table(sounds([12] * 1000))

    def places(stage, epoch):
        return [int(row["waveform"][0]) % 100 for row, _ in fp.iterate(fp.pipe(rows, stage), epoch=epoch)]

    first, second = (places(fp.audio.crop_waveforms(10, seed=0), epoch) for epoch in (0, 1))
    assert first != second
    assert all(280 < first.count(place) < 390 for place in range(3))  # 333 each, give or take four standard deviations
    assert {*places(fp.audio.crop_waveforms(10), 0), *places(fp.audio.crop_waveforms(10), 1)} == {1}


def test_crops_are_values_with_a_name():
    assert_value(fp.audio.crop_waveforms(16000, seed=3))
    assert_prints(fp.audio.crop_waveforms(16000, seed=3), {"crop_waveforms": fp.audio.crop_waveforms})
    assert_told_apart(
        fp.pipe(fp.from_table(sounds([3])), fp.audio.crop_waveforms(2, seed=0)),
        fp.pipe(fp.from_table(sounds([3])), fp.audio.crop_waveforms(2)),
    )


def test_the_column_becomes_lists_of_its_numbers():
    for kind, values in (("floats", pa.float32()), ("16 bits", pa.int16()), ("tensors", pa.float32())):
        assert fp.schema(fp.pipe(fp.from_table(sounds([12, 12], kind)), fp.audio.crop_waveforms(5))) == pa.schema(
            {"waveform": pa.list_(values)}
        )


def test_what_is_no_waveform_is_refused_when_the_pipeline_is_built_or_by_row():
    with pytest.raises(SchemaError, match=r"crop_waveforms needs lists or tensors \[T\] of numbers in column 'waveform', got string"):
        fp.schema(fp.pipe(fp.from_examples([{"waveform": "a.wav"}]), fp.audio.crop_waveforms(5)))
    with pytest.raises(SchemaError, match="'sound'"):
        fp.schema(fp.pipe(fp.from_table(sounds([3])), fp.audio.crop_waveforms(5, column="sound")))
    with pytest.raises(DataError, match=r"crop_waveforms: column 'waveform' of source row 1 is null"):
        list(fp.pipe(fp.from_examples([{"waveform": [1.0]}, {"waveform": None}]), fp.audio.crop_waveforms(5)))
    with pytest.raises(ArgumentError, match="length must be at least 1, got length=0"):
        fp.audio.crop_waveforms(0)
    with pytest.raises(ArgumentTypeError, match="seed must be an int"):
        fp.audio.crop_waveforms(3, seed=0.5)
