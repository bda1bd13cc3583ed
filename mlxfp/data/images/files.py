"""Files of images to pixels, as a browser shows them: upright, over white, with eight bits for each channel."""

from io import BytesIO
from typing import Any

import numpy as np
from attrs import define, field

from mlxfp.data.images.pixels import PILLOW_MODES, Mode, Pixels, UnusableImageError, check_size, in_mode, installed, pillow, turned

_ORIENTATION = 0x0112  # the number of the tag in EXIF
_PLANES, _SEPARATE, _BITS = 0x011C, 2, 0x0102  # tags of TIFF: PlanarConfiguration, one of its values, BitsPerSample
_JPEG = b"\xff\xd8\xff"
_TURBO = {"Gray": "GRAY", "YCbCr": "RGB", "RGB": "RGB"}  # colours of JPEG files that simplejpeg decodes as Pillow does, and to what
Encoded = bytes | memoryview

_MOST_REUSED = 1 << 24  # bytes of an image, above which memory for it is asked for and given back each time


@define(eq=False)
class Memory:
    """Memory that one image after another is decoded into: getting new memory from the system takes a tenth of the time of decoding."""

    _held: Pixels = field(init=False, factory=lambda: np.empty(0, np.uint8))

    def of(self, size: int) -> Pixels | None:
        """Return at least so many bytes, which the last image may have been in; None where the image is to have its own."""
        if size > _MOST_REUSED:
            return None
        if len(self._held) < size:
            self._held = np.empty(size, np.uint8)
        return self._held


def read_file(data: Encoded, mode: Mode | None, needed_by: str, memory: Memory | None = None) -> Pixels:
    """Return the pixels of a file, uint8[H, W, C]; raise `UnusableImageError` for one that is damaged, too large or has another mode.

    JPEG files are decoded by simplejpeg where it is installed: the same pixels in two thirds of the time that Pillow takes. With `memory`,
    pixels are valid until another file is read into it.
    """
    own, found = pillow(needed_by), None
    try:
        if data[: len(_JPEG)] == _JPEG and (turbo := installed("simplejpeg")) is not None:
            found = _read_jpeg(data, turbo, own, memory)
        pixels, orientation = _read(data, mode, own) if found is None else found
    except (UnusableImageError, MemoryError):
        raise
    except Exception as error:  # a file can be damaged in more ways than Pillow has errors for
        what = str(error).partition(" <_io.")[0].rstrip(".")  # Pillow prints the object that it reads, with its place in memory
        raise UnusableImageError(f'cannot be decoded as an image: {what}. Leave such rows out by on_error("skip").') from error
    return in_mode(turned(pixels, orientation), mode)


def _read_jpeg(data: Encoded, turbo: Any, own: Any, memory: Memory | None) -> tuple[Pixels, int] | None:
    """Return the pixels of a JPEG file as they are stored, and its orientation; None for a file that is for Pillow to judge."""
    try:
        height, width, colors, _ = turbo.decode_jpeg_header(data)
        if colors not in _TURBO:
            return None
        check_size((height, width), own)
        into = None if memory is None else memory.of(height * width * (1 if colors == "Gray" else 3))
        pixels = turbo.decode_jpeg(data, colorspace=_TURBO[colors], buffer=into)  # strict: an error where Pillow may see damage, too
    except ValueError:
        return None
    if not _has_metadata(data):
        return pixels, 1
    with own.open(BytesIO(data)) as image:
        return pixels, _orientation(image)


def _has_metadata(data: Encoded) -> bool:
    """Whether a JPEG file may have EXIF or XMP, which say how to turn it: both are in segments APP1, before the pixels."""
    at = 2
    while data[at : at + 2] not in (b"\xff\xda", b""):  # SOS: here the pixels begin
        if data[at] != 0xFF or data[at + 1] == 0xE1:  # where segments are laid out in another way, Pillow shall look
            return True
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return False


def _read(data: Encoded, mode: Mode | None, own: Any) -> tuple[Pixels, int]:
    """Do the same for a file of any format, with Pillow, and convert to the mode."""
    with own.open(BytesIO(data)) as image:
        check_size(image.size[::-1], own)
        _check_planes(image)
        image.load()
        pixels = np.asarray(_as_shown(image, mode, own))
        return pixels if pixels.ndim == 3 else pixels[..., None], _orientation(image)  # grey ones have two axes


def _check_planes(image: Any) -> None:
    """Refuse a TIFF whose channels of more than eight bits follow each other: Pillow takes half of their bytes for pixels."""
    tags = getattr(image, "tag_v2", {})
    if tags.get(_PLANES) == _SEPARATE and max(tags.get(_BITS, (8,))) > 8:
        raise UnusableImageError("is a TIFF with channels of 16 bits in planes of their own. Save it with interleaved channels.")


def _orientation(image: Any) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # noqa: BLE001  # damaged EXIF data say nothing, and the pixels are whole
        return 1


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
