"""The rectangle that rows are padded to."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.collators.padding import mask_end_to_end, pad_end_to_end, pad_rows, padded_length, real_mask
from mlxfp.core.arrow.ragged import Ragged


@given(st.integers(0, 1000), st.integers(1, 100))
def test_a_padded_length_is_the_next_multiple_and_never_nothing(longest: int, multiple: int):
    length = padded_length(longest, multiple)
    assert length % multiple == 0
    assert max(1, longest) <= length < max(1, longest) + multiple


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.integers(0, 5), st.sampled_from(["left", "right"]))
def test_rows_are_laid_out_in_order(lengths: list[int], spare: int, side: str):
    ends = np.concatenate([[0], np.cumsum(lengths)])
    values = np.arange(1, ends[-1] + 1)
    rows = pad_rows(values, real_mask(ends, max(lengths) + spare, side), 0)
    assert rows.shape == (len(lengths), max(lengths) + spare)
    assert rows[rows != 0].tolist() == values.tolist()
    for row, length in zip(rows.tolist(), lengths, strict=True):
        kept = row[:length] if side == "right" else row[len(row) - length :]
        assert 0 not in kept


def test_rows_of_arrays_keep_their_further_axes():
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    rows = pad_rows(values, real_mask(np.array([0, 1, 3]), 2, "right"), 0)
    assert rows.tolist() == [[[0, 1], [0, 0]], [[2, 3], [4, 5]]]
    assert rows.dtype == np.float32


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=9),
    st.sampled_from(["left", "right"]),
    st.sampled_from([np.int32, np.float32, np.float16, np.uint8]),
    st.integers(0, 9),
    st.booleans(),
    st.integers(0, 2),
)
def test_rows_end_to_end_are_those_of_rectangles_of_one_row(rows, side, dtype, fill, full, gap):
    if full:  # no row is padded
        rows = [(max(1, count), 0) for count, _ in rows]
    ends = np.cumsum([0, *(count for count, _ in rows)])
    lengths = np.array([max(1, count + spare) for count, spare in rows])
    values = np.arange(ends[-1]).astype(dtype)
    starts, counts = ends[:-1] + gap * np.arange(len(rows)), np.diff(ends)
    apart = np.full(ends[-1] + gap * len(rows), 255).astype(dtype)
    apart[np.repeat(starts - ends[:-1], counts) + np.arange(ends[-1])] = values
    flat = pad_end_to_end(Ragged(apart, starts, counts), lengths, fill, side)
    places = [real_mask(ends[row : row + 2] - ends[row], length, side) for row, length in enumerate(lengths)]
    parts = [pad_rows(values[ends[row] : ends[row + 1]], real, fill)[0] for row, real in enumerate(places)]
    assert flat.dtype == dtype
    assert np.array_equal(flat, np.concatenate(parts))
    assert np.array_equal(mask_end_to_end(counts, lengths, side), np.concatenate([real[0] for real in places]))
