"""Files of images to pixels, as a browser shows them: upright, over white, with eight bits for each channel."""

from io import BytesIO
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mlxfp.core._optional import optional

Mode = Literal["rgb", "grey"]
Pixels = NDArray[Any]

PILLOW_MODES = {"rgb": "RGB", "grey": "L"}

_ORIENTATION = 0x0112  # the number of the tag in EXIF
# How to turn an image of each orientation upright (EXIF 2.32, section 4.6.4).
_TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}


class UnusableImageError(Exception):
    """The end of a sentence about a file: what is wrong with it, and what to do."""


def decode(data: bytes, mode: Mode | None, needed_by: str) -> Pixels:
    """Return the pixels of a file, uint8[H, W, C]; raise `UnusableImageError` for one that is damaged, too large or has another mode."""
    own = pillow(needed_by)
    try:
        with own.open(BytesIO(data)) as found:
            _check_size(found.size, own.MAX_IMAGE_PIXELS)
            found.load()
            pixels = np.asarray(_as_shown(_upright(found, own), mode, own))
    except UnusableImageError:
        raise
    except Exception as error:  # a file can be damaged in more ways than Pillow has errors for
        raise UnusableImageError(f"cannot be decoded as an image: {error}. Filter such rows out.") from error
    return pixels if pixels.ndim == 3 else pixels[..., None]  # grey ones have two axes


def pillow(needed_by: str) -> Any:
    """Return the package, or raise `MissingExtraError`."""
    return optional("PIL.Image", extra="vision", needed_by=needed_by)


def _check_size(size: tuple[int, int], most: int | None) -> None:
    """Check the size that the file declares, before memory for so many pixels is asked for."""
    width, height = size
    if most is not None and width * height > most:
        raise UnusableImageError(
            f"has {width:,} x {height:,} pixels, more than PIL.Image.MAX_IMAGE_PIXELS, {most:,}: a small file may be made to need much "
            "memory. If you trust it, set that to a larger number; else filter such rows out."
        )


def _upright(image: Any, own: Any) -> Any:
    try:
        turn = _TURNS.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # noqa: BLE001  # damaged EXIF data say nothing, and the pixels are whole
        turn = None
    return image if turn is None else image.transpose(own.Transpose[turn])


def _as_shown(image: Any, mode: Mode | None, own: Any) -> Any:
    if mode is None:
        if image.mode not in PILLOW_MODES.values():
            raise UnusableImageError(f'has the mode {image.mode}. Give mode="rgb" or mode="grey".')
        return image
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):  # Pillow would clip at 255
        image = own.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise UnusableImageError(
            f"has numbers of 32 bits (mode {image.mode}), and it is unknown which is white. Scale it to uint8 with map."
        )
    if image.has_transparency_data:
        over = own.new("RGBA", image.size, "white")
        over.alpha_composite(image.convert("RGBA"))
        image = over
    return image.convert(PILLOW_MODES[mode])
