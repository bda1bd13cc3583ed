"""Decoding of image files to upright 8-bit pixels over a white background, as in a browser."""

from io import BytesIO
from typing import Any

import numpy as np
from attrs import define, field

from mlxfp.data.images.pixels import PILLOW_MODES, Mode, Pixels, UnusableImageError, check_size, in_mode, installed, pillow, turned

_ORIENTATION = 0x0112  # number of the EXIF tag for the orientation
# TIFF tags: number of the tag PlanarConfiguration, its value for separate planes, and number of the tag BitsPerSample
_PLANES, _SEPARATE, _BITS = 0x011C, 2, 0x0102
# Pillow's names of pixel formats in PNG files: 16-bit colours, and grey values that are multiplied to 8 bits
_RGB_16, _SCALES = "RGB;16B", {"L;2": 85, "L;4": 17}
_JPEG = b"\xff\xd8\xff"
# JPEG colour spaces that simplejpeg decodes in the same way as Pillow, each with the output format for simplejpeg
_TURBO = {"Gray": "GRAY", "YCbCr": "RGB", "RGB": "RGB"}
Encoded = bytes | memoryview

_MOST_REUSED = 1 << 24  # Size limit of the shared buffer, in bytes. Each larger image gets its own memory.


@define(eq=False)
class Memory:
    """Buffer into which images are decoded one after the other. Allocating memory for every image would take 10 % more time."""

    _buffer: Pixels = field(init=False, factory=lambda: np.empty(0, np.uint8))

    def of(self, size: int) -> Pixels | None:
        """Return the shared buffer, with at least `size` bytes, or None for a large image. The buffer may still hold the previous image."""
        if size > _MOST_REUSED:
            return None
        if len(self._buffer) < size:
            self._buffer = np.empty(size, np.uint8)
        return self._buffer


def read_file(data: Encoded, mode: Mode | None, needed_by: str, memory: Memory | None = None) -> Pixels:
    """Return the pixels of an image file, uint8[H, W, C].

    If simplejpeg is installed, it decodes JPEG files to the same pixels as Pillow in two thirds of the time. If `memory` is given, the
    pixels can be a view of this buffer. The next image read with this buffer overwrites these pixels.

    Raises `UnusableImageError` for a damaged file, too many pixels or an unsupported mode.
    """
    pil, decoded = pillow(needed_by), None
    try:
        if data[: len(_JPEG)] == _JPEG and (turbo := installed("simplejpeg")) is not None:
            decoded = _read_jpeg(data, turbo, pil, memory)
        pixels, orientation = _read(data, mode, pil) if decoded is None else decoded
    except (UnusableImageError, MemoryError):
        raise
    except Exception as error:  # Pillow raises many exception types for damaged files
        problem = str(error).partition(" <_io.")[0].rstrip(".")  # remove the address of the file object from the message of Pillow
        raise UnusableImageError(
            f'the file cannot be decoded as an image: {problem}. Convert the file to PNG, or skip damaged rows with on_error("skip").'
        ) from error
    return in_mode(turned(pixels, orientation), mode)


def _read_jpeg(data: Encoded, turbo: Any, pil: Any, memory: Memory | None) -> tuple[Pixels, int] | None:
    """Return the pixels of a JPEG file without rotation, and the EXIF orientation. Returns None if Pillow must read the file."""
    try:
        height, width, colors, _ = turbo.decode_jpeg_header(data)
        if colors not in _TURBO:
            return None
        check_size((height, width), pil)
        buffer = None if memory is None else memory.of(height * width * (1 if colors == "Gray" else 3))
        # with its default settings, simplejpeg raises ValueError for a damaged file
        pixels = turbo.decode_jpeg(data, colorspace=_TURBO[colors], buffer=buffer)
    except ValueError:
        return None
    if not _has_metadata(data):
        return pixels, 1
    with pil.open(BytesIO(data)) as image:
        return pixels, _orientation(image)


def _has_metadata(data: Encoded) -> bool:
    """Return True if a JPEG file may contain EXIF or XMP data with an orientation.

    Such data is stored in APP1 segments before the pixels.
    """
    offset = 2
    while data[offset : offset + 2] not in (b"\xff\xda", b""):  # \xff\xda begins the SOS segment, which holds the pixels
        # Every segment of a JPEG file should start with 0xFF. Pillow reads the metadata of files that break this rule.
        if data[offset] != 0xFF or data[offset + 1] == 0xE1:
            return True
        offset += 2 + int.from_bytes(data[offset + 2 : offset + 4], "big")
    return False


def _read(data: Encoded, mode: Mode | None, pil: Any) -> tuple[Pixels, int]:
    """Read a file in any format with Pillow. Return the pixels in the given mode, and the EXIF orientation."""
    with pil.open(BytesIO(data)) as image:
        check_size(image.size[::-1], pil)
        _check_planes(image)
        raw = image.tile[0][3] if image.format == "PNG" and image.tile else ""
        image.load()
        pixels = np.asarray(_as_shown(_with_transparency(image, raw, data, pil), mode, pil))
        # add the channel axis, which Pillow omits for grey images
        return pixels if pixels.ndim == 3 else pixels[..., None], _orientation(image)


def _check_planes(image: Any) -> None:
    """Raise an error for a TIFF file with separate planes of more than 8 bits, because Pillow would use only half of the bytes."""
    tags = getattr(image, "tag_v2", {})
    if tags.get(_PLANES) == _SEPARATE and max(tags.get(_BITS, (8,))) > 8:
        raise UnusableImageError(
            "the file is a TIFF with 16-bit channels in separate planes, which Pillow misreads. Save the file with interleaved channels."
        )


def _with_transparency(image: Any, raw: Any, data: Encoded, pil: Any) -> Any:
    """Correct the transparent colour of a PNG file with 2, 4 or 16 bits. Pillow compares 8-bit pixels with the colour in the file.

    `raw` is the format of the pixels in the file.
    """
    color = image.info.get("transparency")
    if isinstance(color, int) and raw in _SCALES:
        image.info["transparency"] = color * _SCALES[raw]
    if raw != _RGB_16 or color is None:
        return image
    with pil.open(BytesIO(data)) as lower:
        # Pillow keeps the upper 8 bits of big-endian values. In little-endian order, these are the lower 8 bits.
        lower.tile = [(*tile[:3], "RGB;16L") for tile in lower.tile]
        values = np.asarray(image).astype(np.uint16) << 8 | np.asarray(lower)
    return pil.fromarray(np.where((values == color).all(axis=-1, keepdims=True), np.uint8(255), np.asarray(image)))


def _orientation(image: Any) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # noqa: BLE001  # the pixels are usable despite damaged EXIF
        return 1


def _as_shown(image: Any, mode: Mode | None, pil: Any) -> Any:
    if mode is None:
        if image.mode not in PILLOW_MODES.values():
            raise UnusableImageError(
                f'the image has the colour mode {image.mode}, which needs a conversion. Write mode="rgb" or mode="grey".'
            )
        return image
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):  # Pillow itself would clip 16-bit values at 255
        values, transparent = np.asarray(image).astype(np.uint16), image.info.get("transparency")
        image = pil.fromarray(np.where(values == transparent, 255, values >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise UnusableImageError(
            f"the image has 32-bit pixels (mode {image.mode}) of unknown range. Call fp.map to scale the pixels to uint8."
        )
    if image.has_transparency_data:
        background = pil.new("RGBA", image.size, "white")
        background.alpha_composite(image.convert("RGBA"))
        image = background
    if image.mode == "LAB":  # Pillow converts LAB to RGB, but not to grey
        image = image.convert("RGB")
    return image.convert(PILLOW_MODES[mode])
