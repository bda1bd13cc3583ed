"""Images that are mirrored at random."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from tests.data.images.pictures import PIXELS, drawn, images, pixels_of


@given(pixels=images(), seed=st.integers(0, 9), probability=st.floats(0, 1), vertical=st.booleans())
def test_a_row_is_mirrored_if_its_number_is_below_the_probability(pixels, seed, probability, vertical):
    rows = fp.from_table({"image": np.stack([pixels] * 5)})
    found = pixels_of(fp.pipe(rows, fp.images.random_flip(seed=seed, probability=probability, vertical=vertical)))
    for row, made in enumerate(found):
        mirrored = np.flipud(pixels) if vertical else np.fliplr(pixels)
        expected = mirrored if drawn("random_flip", seed, row, 1)[0] < probability else pixels
        assert np.array_equal(made, expected)


@given(seed=st.integers(0, 9), vertical=st.booleans())
def test_mirrored_twice_is_as_before(seed, vertical):
    flip = fp.images.random_flip(seed=seed, vertical=vertical)
    rows = fp.from_table({"image": np.repeat(PIXELS, 5, axis=0)})
    assert np.array_equal(pixels_of(fp.pipe(rows, flip, flip)), pixels_of(rows))


def test_never_and_always():
    rows = fp.from_table({"image": np.repeat(PIXELS, 20, axis=0)})
    assert np.array_equal(pixels_of(fp.pipe(rows, fp.images.random_flip(seed=0, probability=0))), pixels_of(rows))
    assert np.array_equal(pixels_of(fp.pipe(rows, fp.images.random_flip(seed=0, probability=1))), np.stack(pixels_of(rows))[:, :, ::-1])
