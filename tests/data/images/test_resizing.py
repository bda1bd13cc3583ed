"""Images of another size: what Pillow makes of them, and the four pixels around each new one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.data.images import pixels as pixel_functions
from mlxfp.data.images.pixels import all_resized, resized
from mlxfp.support.errors import DataError
from tests.data.images.pictures import as_image, as_pixels, colored, files, images, pillow, pixels_of, rows_of, smooth

SIZES = st.tuples(st.integers(1, 15), st.integers(1, 15))


def apart(found, expected):
    assert found.shape == expected.shape
    return np.abs(found.astype(int) - expected).max()


@settings(deadline=None)
@given(several=st.lists(images(), min_size=1, max_size=3), size=SIZES)
def test_another_size_is_reached_as_pillow_reaches_it(several, size):
    bilinear = pillow().Resampling.BILINEAR
    found = pixels_of(fp.pipe(files(several), fp.images.resize(size)))
    for pixels, made in zip(colored(several), found, strict=True):
        assert apart(made, as_pixels(as_image(pixels).resize(size[::-1], bilinear))) <= 1


@pytest.mark.parametrize("shape", [(375, 500, 3), (1000, 30, 1), (7, 900, 3)])
@pytest.mark.parametrize("size", [(224, 224), (3, 400), (1, 1)])
@pytest.mark.parametrize("fast", [True, False])
def test_large_images_too(shape, size, fast, monkeypatch):
    if not fast:
        monkeypatch.setattr(pixel_functions, "installed", lambda module: None)
    pixels = smooth(shape, 0)
    noisy = np.clip(pixels + np.random.default_rng(0).integers(-9, 9, shape), 0, 255).astype(np.uint8)
    found, expected = resized(noisy, size, "test"), as_pixels(as_image(noisy).resize(size[::-1], pillow().Resampling.BILINEAR))
    assert apart(found, expected) <= (1 if fast else 0)


def four_around(pixels, size):
    """The mean of the four pixels around each new one, by their distance; beyond an edge, the last pixel."""
    places = [(np.arange(new) + 0.5) * old / new - 0.5 for old, new in zip(pixels.shape, size, strict=False)]
    lows = [np.floor(place).astype(int) for place in places]
    (down, right), values = (place - low for place, low in zip(places, lows, strict=True)), 0.0
    for vertical, high in ((1 - down, 0), (down, 1)):
        for horizontal, wide in ((1 - right, 0), (right, 1)):
            rows, columns = (np.clip(low + more, 0, old - 1) for low, more, old in zip(lows, (high, wide), pixels.shape, strict=False))
            values = values + pixels[rows[:, None], columns].astype(float) * (vertical[:, None] * horizontal)[..., None]
    return values


@settings(deadline=None)
@given(pixels=images(), size=SIZES)
def test_without_antialiasing_the_four_pixels_around_count(pixels, size):
    (found,) = pixels_of(fp.pipe(rows_of([pixels]), fp.images.resize(size, antialias=False)))
    assert np.abs(found - four_around(pixels, size)).max() <= 1.001  # Pillow rounds down


@settings(deadline=None)
@given(pixels=images(), length=st.integers(1, 15))
def test_the_short_side_has_the_length_and_proportions_stay(pixels, length):
    (tensor,), (file,) = (pixels_of(fp.pipe(rows, fp.images.resize_short_side(length))) for rows in (rows_of([pixels]), files([pixels])))
    height, width, _ = pixels.shape
    short, long = sorted((height, width))
    shape = (length, length * long // short) if height == short else (length * long // short, length)
    assert tensor.shape[:2] == file.shape[:2] == shape
    assert apart(tensor, as_pixels(as_image(pixels).resize(shape[::-1], pillow().Resampling.BILINEAR))) <= 1


@settings(deadline=None)
@given(
    pixels=images(most=40),
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    kind=st.sampled_from([np.uint8, np.float32]),
    antialias=st.booleans(),
    at_once=st.sampled_from([1, 5000, 1 << 20]),
)
def test_images_of_one_size_are_resized_together_as_one_by_one(pixels, size, kind, antialias, at_once):
    several = np.stack([np.roll(pixels, shift, axis=(0, 1)) for shift in range(5)]).astype(kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            pixel_functions, "_BYTES_TOGETHER", max(at_once, pixels.shape[2] * max(pixels.shape[0] * pixels.shape[1], size[0] * size[1]))
        )
        together = all_resized(several, size, "test", antialias=antialias)
    each = [resized(one, size, "test", antialias=antialias) for one in several]
    assert np.array_equal(together, each)
    assert np.asarray(together).dtype == kind


@pytest.mark.parametrize("rows", [files, rows_of])
def test_a_narrow_image_that_would_become_too_large_is_named(rows, monkeypatch):
    monkeypatch.setattr(pillow(), "MAX_IMAGE_PIXELS", 1000)
    narrow = np.zeros((1, 50, 3), np.uint8)
    assert pixels_of(fp.pipe(rows([narrow]), fp.images.resize_short_side(4)))[0].shape == (4, 200, 3)
    message = (
        r"resize_short_side: column 'image' of source row 0.*: the image has 50 x 1 pixels and would have 250 x 5 pixels, more than PIL"
    )
    with pytest.raises(DataError, match=message):
        list(fp.pipe(rows([narrow]), fp.images.resize_short_side(5)))


def test_the_same_size_changes_nothing():
    pixels = smooth((9, 7, 3), 0)
    assert resized(pixels, (9, 7), "test") is pixels


def test_floats_are_resized_channel_by_channel():
    pixels = smooth((9, 7, 3), 0)
    found = resized((pixels / 255).astype(np.float32), (5, 4), "test")
    assert found.dtype == np.float32
    assert np.abs(found * 255 - resized(pixels, (5, 4), "test")).max() <= 1.01  # rounded after each of two passes
