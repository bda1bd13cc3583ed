"""Colours that change at random: what torchvision does, written with Pillow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.data.images.pixels import in_mode
from tests.data.images.pictures import PIXELS, as_image, as_pixels, drawn, images, pillow, pixels_of

AMOUNTS = st.sampled_from([0.0, 0.3, 1.0, 2.5])


def adjust_hue(image, share):
    """`adjust_hue` of torchvision/transforms/_functional_pil.py."""
    if image.mode == "L":
        return image
    hue, saturation, value = image.convert("HSV").split()
    turned = np.array(hue, dtype=np.uint8) + np.array(int(share * 255)).astype(np.uint8)
    return pillow().merge("HSV", (pillow().fromarray(turned), saturation, value)).convert("RGB")


def jittered(image, amounts, hue, numbers):
    enhance = pytest.importorskip("PIL.ImageEnhance")
    kinds = [enhance.Brightness, enhance.Contrast, enhance.Color]
    for change in sorted(range(4), key=lambda place: numbers[place]):
        number = numbers[4 + change]
        if change == 3 and hue:
            image = adjust_hue(image, (2 * number - 1) * hue)
        elif change < 3 and amounts[change]:
            low, high = max(0.0, 1 - amounts[change]), 1 + amounts[change]
            image = kinds[change](image).enhance(low + number * (high - low))
    return image


@settings(deadline=None)
@given(pixels=images(), amounts=st.tuples(AMOUNTS, AMOUNTS, AMOUNTS), hue=st.sampled_from([0.0, 0.1, 0.5]), seed=st.integers(0, 9))
def test_colors_change_as_in_torchvision(pixels, amounts, hue, seed):
    amounts = amounts if any(amounts) or hue else (0.4, 0.0, 0.0)
    brightness, contrast, saturation = amounts
    stage = fp.images.color_jitter(seed=seed, brightness=brightness, contrast=contrast, saturation=saturation, hue=hue)
    found = pixels_of(fp.pipe(fp.from_table({"image": np.stack([pixels] * 3)}), stage))
    for row, made in enumerate(found):
        expected = as_pixels(jittered(as_image(pixels), amounts, hue, drawn("color_jitter", seed, row, 8)))
        assert np.array_equal(made, expected)


def test_grey_is_that_of_pillow():
    expected = np.stack([as_pixels(as_image(each).convert("L")) for each in PIXELS])
    assert np.array_equal(in_mode(PIXELS, "grey"), expected)
