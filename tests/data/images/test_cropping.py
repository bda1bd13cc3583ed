"""Parts of images: a plain version of each stage, for one image, and the parts are inside of it."""

from math import exp, log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import DataError
from tests.data.images.pictures import PIXELS, as_image, as_pixels, drawn, images, pillow, pixels_of, rows_of


@given(pixels=images(), data=st.data())
def test_the_middle_is_the_one_of_torchvision(pixels, data):
    height, width = (data.draw(st.integers(1, side)) for side in pixels.shape[:2])
    (found,) = pixels_of(fp.pipe(rows_of([pixels]), fp.images.center_crop((height, width))))
    top, left = round((pixels.shape[0] - height) / 2.0), round((pixels.shape[1] - width) / 2.0)
    assert np.array_equal(found, pixels[top : top + height, left : left + width])


@given(pixels=images(least=2), data=st.data(), padding=st.integers(0, 3), seed=st.integers(0, 9))
def test_a_random_part_is_where_the_numbers_of_its_row_say(pixels, data, padding, seed):
    height, width = (data.draw(st.integers(1, side + 2 * padding)) for side in pixels.shape[:2])
    found = pixels_of(
        fp.pipe(fp.from_table({"image": np.stack([pixels] * 3)}), fp.images.random_crop((height, width), seed=seed, padding=padding))
    )
    margin = np.zeros((pixels.shape[0] + 2 * padding, pixels.shape[1] + 2 * padding, pixels.shape[2]), np.uint8)
    margin[padding : padding + pixels.shape[0], padding : padding + pixels.shape[1]] = pixels
    for row, part in enumerate(found):
        down, right = drawn("random_crop", seed, row, 2)
        top, left = int(down * (margin.shape[0] - height + 1)), int(right * (margin.shape[1] - width + 1))
        assert np.array_equal(part, margin[top : top + height, left : left + width])


def test_every_part_is_drawn_and_none_beyond_the_edge():
    numbers = np.arange(12, dtype=np.uint8).reshape(1, 3, 4)
    found = {
        row.item(0)
        for row in pixels_of(fp.pipe(fp.from_table({"image": np.repeat(numbers, 200, axis=0)}), fp.images.random_crop((2, 3), seed=0)))
    }
    assert found == {0, 1, 4, 5}


def torchvision_part(height, width, scale, ratio, numbers):
    """`RandomResizedCrop.get_params`, with the numbers from 0 to 1 given."""
    for first in range(0, 20, 2):
        target_area = height * width * (scale[0] + numbers[first] * (scale[1] - scale[0]))
        aspect_ratio = exp(log(ratio[0]) + numbers[first + 1] * (log(ratio[1]) - log(ratio[0])))
        w, h = round(sqrt(target_area * aspect_ratio)), round(sqrt(target_area / aspect_ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(numbers[20] * (height - h + 1)), int(numbers[21] * (width - w + 1)), h, w
    in_ratio = width / height
    w, h = width, height
    if in_ratio < min(ratio):
        h = round(w / min(ratio))
    elif in_ratio > max(ratio):
        w = round(h * max(ratio))
    return (height - h) // 2, (width - w) // 2, h, w


@settings(deadline=None)
@given(
    pixels=images(least=2, most=20),
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    scale=st.sampled_from([(0.08, 1.0), (0.9, 1.0), (1.0, 1.0), (0.01, 0.02)]),
    ratio=st.sampled_from([(3 / 4, 4 / 3), (1.0, 1.0), (3.0, 4.0), (0.2, 0.3)]),
    seed=st.integers(0, 9),
)
def test_a_resized_part_is_the_one_of_torchvision(pixels, size, scale, ratio, seed):
    rows = fp.from_table({"image": np.stack([pixels] * 3)})
    found = pixels_of(fp.pipe(rows, fp.images.random_resized_crop(size, seed=seed, scale=scale, ratio=ratio)))
    for row, made in enumerate(found):
        top, left, height, width = torchvision_part(*pixels.shape[:2], scale, ratio, drawn("random_resized_crop", seed, row, 22))
        assert 0 <= top <= top + height <= pixels.shape[0]
        assert 0 <= left <= left + width <= pixels.shape[1]
        part = as_image(pixels[top : top + height, left : left + width])
        expected = as_pixels(part.resize(size[::-1], pillow().Resampling.BILINEAR))
        assert np.abs(made.astype(int) - expected).max() <= 1


def test_a_very_narrow_image_has_a_part_of_at_least_one_pixel():
    for shape in ((1, 1, 60, 1), (1, 60, 1, 1)):
        rows = fp.from_table({"image": np.full(shape, 7, np.uint8)})
        for ratio in ((3 / 4, 4 / 3), (40.0, 50.0), (0.01, 0.02)):
            assert pixels_of(fp.pipe(rows, fp.images.random_resized_crop((2, 2), seed=0, ratio=ratio)))[0].tolist() == [[[7]] * 2] * 2


@pytest.mark.parametrize(
    "stage", [fp.images.center_crop((7, 2)), fp.images.random_crop((7, 2), seed=0), fp.images.random_crop((9, 2), seed=0, padding=1)]
)
def test_an_image_that_is_too_small_is_named(stage):
    with pytest.raises(
        DataError, match=r"crop: column 'image' of source row 0: the image has \d x \d pixels \(height x width\), too few for a crop"
    ):
        list(fp.pipe(fp.from_table({"image": PIXELS}), stage))
