"""Stage that changes the colours of images at random."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from attrs import frozen

from mlxfp.core.chunks import Example
from mlxfp.core.datasets import Dataset
from mlxfp.data.images.editing import Drawn, ImageStage, name_of
from mlxfp.data.images.pixels import Pixels, in_mode, pillow
from mlxfp.support.checks import check_integer, check_text, check_types, explain_call
from mlxfp.support.errors import ArgumentError


@explain_call
def color_jitter(  # noqa: PLR0913  # keyword-only
    *, seed: int, brightness: float = 0.0, contrast: float = 0.0, saturation: float = 0.0, hue: float = 0.0, image: str = "image"
) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Change brightness, contrast, saturation and hue of each image, in a random order.

    The changes are those of torchvision's `ColorJitter` for Pillow images (torchvision/transforms/_functional_pil.py):

    - Brightness blends the image with black, by a factor drawn uniformly from max(0, 1 - brightness) to 1 + brightness.
    - Contrast blends the image with its mean grey. Saturation blends the image with its grey version. Both factors are drawn in the
      same way.
    - Hue is rotated by a fraction of the colour circle, drawn uniformly from -hue to hue. `hue` is at most 0.5.

    Grey images have no saturation and hue to change. The random numbers depend on seed, epoch and row. `decode` describes the types of the
    column `image` and the errors.

    >>> import mlxfp as fp
    >>> import numpy as np
    >>> greys = fp.from_table({"image": np.full((3, 1, 1), 100, np.uint8)})
    >>> [row["image"].item() for row in fp.pipe(greys, fp.images.color_jitter(seed=0, brightness=0.2))]
    [89, 119, 97]
    """
    check_integer(seed=seed)
    amounts = {"brightness": brightness, "contrast": contrast, "saturation": saturation, "hue": hue}
    check_types((int, float), **amounts)
    check_text(image=image)
    for name, amount in amounts.items():
        most = 0.5 if name == "hue" else float("inf")
        if not 0 <= amount <= most or amount == float("inf"):
            raise ArgumentError(f"{name} must be at least 0{' and at most 0.5' if name == 'hue' else ''}, got {name}={amount!r}.")
    if not any(amounts.values()):
        raise ArgumentError("color_jitter changes nothing without an amount. Give brightness, contrast, saturation or hue.")
    if hue:
        pillow("images.color_jitter")
    return _ColorJitter(seed, float(brightness), float(contrast), float(saturation), float(hue), image)


@frozen(repr=False)
class _ColorJitter(ImageStage):
    seed: int
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0
    image: str = "image"
    draws_each: ClassVar[int] = 8  # two random numbers for each of the 4 color changes: one for the order, one for the strength

    def edit(self, pixels: Pixels, drawn: Drawn) -> Pixels:
        for change in np.argsort(drawn[:4], kind="stable").tolist():
            amount = (self.brightness, self.contrast, self.saturation, self.hue)[change]
            number = 2 * float(drawn[4 + change]) - 1  # random number from -1 to 1
            if not amount:
                continue
            if change == _HUE:
                pixels = _turn_hue(pixels, number * amount, name_of(self))
            else:
                low, high = max(0.0, 1 - amount), 1 + amount
                pixels = _mixed(pixels, _OTHERS[change](pixels), low + (number + 1) / 2 * (high - low))
        return pixels


_HUE = 3


# Brightness blends the image with black, contrast with the mean grey value, and saturation with the grey image.
_OTHERS: tuple[Callable[[Pixels], Any], ...] = (
    lambda pixels: 0,
    lambda pixels: int(in_mode(pixels, "grey").mean() + 0.5),
    lambda pixels: in_mode(pixels, "grey"),
)


def _mixed(pixels: Pixels, other: Any, share: float) -> Pixels:
    """Return share * pixels + (1 - share) * other, rounded down like `PIL.Image.blend`."""
    if np.ndim(other) == 0:  # `other` is one grey value, so a lookup table of 256 values is enough
        table: Pixels = _mixed_values(np.arange(256, dtype=np.float32), np.float32(other), share)
        return table.take(pixels)
    return _mixed_values(pixels.astype(np.float32), other.astype(np.float32), share)


def _mixed_values(values: Pixels, other: Any, share: float) -> Pixels:
    mixed: Pixels = (other + np.float32(share) * (values - other)).clip(0, 255).astype(np.uint8)
    return mixed


def _turn_hue(pixels: Pixels, share: float, needed_by: str) -> Pixels:
    if pixels.shape[2] == 1:
        return pixels
    pil = pillow(needed_by)
    colors = np.array(pil.fromarray(np.ascontiguousarray(pixels)).convert("HSV"))
    colors[..., 0] += np.uint8(int(share * 255) % 256)  # Hue is an angle, so the overflow of uint8 is correct.
    return np.asarray(pil.frombytes("HSV", colors.shape[1::-1], colors.tobytes()).convert("RGB"))
