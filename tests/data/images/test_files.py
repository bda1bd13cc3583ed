"""Files to pixels, as a browser shows them."""

import struct
import zlib
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.data.images import files
from mlxfp.data.images.files import read_file
from mlxfp.data.images.pixels import UnusableImageError
from mlxfp.support.errors import DataError
from tests.data.images.pictures import PIXELS, as_image, as_pixels, encoded, pillow, pixels_of, shown, smooth


@pytest.fixture(params=["simplejpeg", "Pillow"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Decode JPEG files with each of the two packages."""
    if request.param == "Pillow":
        monkeypatch.setattr(files, "installed", lambda module: None)
    else:
        pytest.importorskip("simplejpeg", reason="a faster decoder: pip install 'mlxfp[vision]'")
    return str(request.param)


@settings(deadline=None)
@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 3])),
    quality=st.integers(1, 100),
    subsampling=st.sampled_from(["4:4:4", "4:2:2", "4:2:0"]),
    progressive=st.booleans(),
    restarts=st.integers(0, 2),
    mode=st.sampled_from(["rgb", "grey", None]),
    seed=st.integers(0, 99),
)
def test_a_jpeg_file_is_within_1_of_what_pillow_makes_of_it(shape, quality, subsampling, progressive, restarts, mode, seed):
    pytest.importorskip("simplejpeg", reason="a faster decoder: pip install 'mlxfp[vision]'")
    more = {"subsampling": subsampling} if shape[2] == 3 else {}
    image = as_image(smooth(shape, seed))
    data = encoded(image, "JPEG", quality=quality, progressive=progressive, restart_marker_rows=restarts, **more)
    plain = pillow().open(BytesIO(data))
    expected = as_pixels(plain if mode is None else plain.convert({"rgb": "RGB", "grey": "L"}[mode]))
    found = read_file(data, mode, "test")
    assert found.shape == expected.shape
    assert np.abs(found.astype(int) - expected).max() <= 1


@pytest.mark.parametrize("stored", ["RGB", "L", "P", "RGBA", "CMYK", "LA", "1", "YCbCr"])
@pytest.mark.parametrize(("mode", "wanted"), [("rgb", "RGB"), ("grey", "L")])
def test_every_mode_is_converted_as_pillow_converts_it(stored: str, mode: Any, wanted: str):
    if stored == "YCbCr" and int(version("pillow").partition(".")[0]) < 13:
        pytest.skip("Pillow before 13 does not read the YCbCr files that it writes")
    made = as_image(PIXELS[0]).convert(stored)
    data = encoded(made, "TIFF")
    assert np.array_equal(shown(data, mode), as_pixels(made.convert(wanted)))
    if stored not in ("RGB", "L"):
        with pytest.raises(UnusableImageError, match=f'the image has the colour mode {stored}, .* Write mode="rgb" or mode="grey".'):
            read_file(data, None, "test")


@pytest.mark.parametrize("mode", ["rgb", "grey"])
def test_a_cmyk_jpeg_is_converted_as_pillow_converts_it(decoder: str, mode: Any):
    data = encoded(as_image(smooth((16, 16, 3), 0)).convert("CMYK"), "JPEG", quality=95)
    expected = as_pixels(pillow().open(BytesIO(data)).convert("RGB" if mode == "rgb" else "L"))
    assert np.abs(shown(data, mode).astype(int) - expected).max() <= 1


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("mode", ["rgb", "grey", None])
def test_an_image_is_upright_whatever_its_orientation(decoder: str, kind: str, mode: Any):
    image = pillow()
    turns = ["FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_90", "TRANSVERSE", "ROTATE_270"]
    flat = np.repeat(np.repeat(np.array([[0, 90, 180], [250, 130, 50]], np.uint8), 16, axis=0), 16, axis=1)  # blocks survive JPEG
    upright = image.fromarray(flat).convert("RGB")
    expected = read_file(encoded(upright, kind), mode, "test")
    for number, turn in enumerate([None, *turns], 1):
        exif = image.Exif()
        exif[0x0112] = number
        stored = upright if turn is None else upright.transpose(image.Transpose[turn])
        found = read_file(encoded(stored, kind, exif=exif), mode, "test")
        assert found.shape == expected.shape, number
        assert np.abs(found.astype(int) - expected).max() < 13, number


def test_an_orientation_in_xmp_counts_too(decoder: str):
    packet = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    data = encoded(as_image(smooth((8, 16, 3), 0)), "JPEG", xmp=packet)
    assert shown(data).shape == (16, 8, 3)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_damaged_exif_data_say_nothing(decoder: str):
    assert shown(encoded(as_image(PIXELS[0]), "JPEG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")).shape == (6, 5, 3)


def test_what_is_transparent_shows_white():
    image = pillow()
    half = image.new("RGBA", (2, 1), (200, 0, 0, 0))
    half.putpixel((1, 0), (200, 0, 0, 128))
    clear = image.new("P", (2, 1), 0)
    clear.putpalette([200, 0, 0, 0, 200, 0])
    clear.putpixel((1, 0), 1)
    grey = image.new("LA", (2, 1), (7, 0))
    grey.putpixel((1, 0), (7, 255))
    for made, options, expected in (
        (half, {}, [[255, 255, 255], [227, 127, 127]]),
        (clear, {"transparency": 0}, [[255, 255, 255], [0, 200, 0]]),
        (grey, {}, [[255, 255, 255], [7, 7, 7]]),
    ):
        for kind in ("PNG", "GIF") if made is clear else ("PNG",):
            np.testing.assert_allclose(shown(encoded(made, kind, **options))[0], expected, atol=1)


def tiff(channels: np.ndarray, *, planes: bool) -> bytes:
    """Write uint16[H, W, 3] as a TIFF, which Pillow cannot: its channels interleaved, or in planes of their own."""
    height, width, count = channels.shape
    data = (np.moveaxis(channels, -1, 0) if planes else channels).astype("<u2").tobytes()
    sizes = [len(data) // count] * count if planes else [len(data)]
    begin = 8 + 2 + 12 * 8 + 4
    bits, starts, lengths = begin, begin + 6, begin + 6 + 12
    at = lengths + 12
    pixels = [at + sum(sizes[:place]) for place in range(len(sizes))]
    one = len(sizes) == 1
    tags = [
        (256, 4, 1, width), (257, 4, 1, height), (258, 3, count, bits), (262, 3, 1, 2), (273, 4, len(sizes), pixels[0] if one else starts),
        (277, 3, 1, count), (279, 4, len(sizes), sizes[0] if one else lengths), (284, 3, 1, 2 if planes else 1),
    ]  # fmt: skip
    head = b"II*\0" + struct.pack("<IH", 8, len(tags)) + b"".join(struct.pack("<HHII", *tag) for tag in tags) + bytes(4)
    lists = struct.pack("<3H", *[16] * 3) + struct.pack("<3I", *(pixels * 3)[:3]) + struct.pack("<3I", *(sizes * 3)[:3])
    return head + lists + data


def test_channels_of_16_bits_are_halved_or_refused():
    channels = np.arange(4 * 5 * 3, dtype=np.uint16).reshape(4, 5, 3) * 1000
    assert (shown(tiff(channels, planes=False)) == channels >> 8).all()
    with pytest.raises(DataError, match="16-bit channels in separate planes"):
        shown(tiff(channels, planes=True))


def test_sixteen_bits_are_shown_by_the_upper_eight():
    wide = np.array([[0, 255, 256, 40000, 65535]], np.uint16)
    kinds = [encoded(pillow().fromarray(wide), kind) for kind in ("PNG", "TIFF")]
    for data in (*kinds, b"P5 5 1 65535\n" + wide.astype(">u2").tobytes()):
        for mode in ("rgb", "grey"):
            assert shown(data, mode)[0, :, 0].tolist() == [0, 0, 1, 156, 255]


def test_the_transparent_value_of_sixteen_bits_is_white():
    wide = np.array([[0x1234, 0x1235, 0xFF00]], np.uint16)
    data = encoded(pillow().fromarray(wide), "PNG", transparency=0x1234)
    for mode in ("rgb", "grey"):
        assert shown(data, mode)[0, :, 0].tolist() == [255, 0x12, 0xFF]


def png(width: int, bits: int, transparent: list[int], row: bytes) -> bytes:
    """Write a PNG file with a single row and a transparent colour, with one or three channels."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", width, 1, bits, {1: 0, 3: 2}[len(transparent)], 0, 0, 0)
    colour = struct.pack(f">{len(transparent)}H", *transparent)
    chunks = {b"IHDR": head, b"tRNS": colour, b"IDAT": zlib.compress(b"\0" + row), b"IEND": b""}
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*pair) for pair in chunks.items())


def test_only_the_transparent_colour_of_sixteen_bits_is_white():
    """The upper 8 bits of the first two colours are equal, and are the lower 8 bits of the third colour."""
    colours = [[0x1234, 0x5678, 0x9ABC], [0x1234, 0x5678, 0x9ABD], [0x12, 0x56, 0x9A], [0xFF00, 0, 0]]
    row = np.array(colours, ">u2").tobytes()
    upper = [[value >> 8 for value in colour] for colour in colours]
    for index, colour in enumerate(colours):
        expected = [[255] * 3 if place == index else values for place, values in enumerate(upper)]
        assert shown(png(4, 16, colour, row))[0].tolist() == expected
    assert shown(png(4, 16, [1, 2, 3], row))[0].tolist() == upper
    assert shown(png(4, 16, colours[0], row), "grey")[0, :, 0].tolist() == [255, 73, 0, 76]


@pytest.mark.parametrize(("bits", "row"), [(2, b"\x1b"), (4, b"\x01\x23")])
def test_the_transparent_value_of_fewer_than_eight_bits_is_white(bits: int, row: bytes):
    for value in range(4):
        expected = [255 if value == place else place * 255 // (2**bits - 1) for place in range(4)]
        assert shown(png(4, bits, [value], row), "grey")[0, :, 0].tolist() == expected


def test_numbers_without_a_white_are_refused():
    for pixels in (np.ones((2, 2), np.float32), np.ones((2, 2), np.int32)):
        with pytest.raises(DataError, match=r"source row 0: the image has 32-bit pixels \(mode [IF]\) of unknown range"):
            shown(encoded(pillow().fromarray(pixels), "TIFF"))


def test_the_first_picture_of_several_is_shown():
    pictures = [pillow().new("RGB", (2, 2), color) for color in ("red", "blue")]
    for kind in ("GIF", "WEBP", "PNG", "TIFF"):
        found = shown(encoded(pictures[0], kind, save_all=True, append_images=pictures[1:]))
        np.testing.assert_allclose(found[0, 0], [255, 0, 0], atol=5)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM"])
def test_an_image_may_be_one_pixel(decoder: str, kind: str):
    assert np.abs(shown(encoded(pillow().new("RGB", (1, 1), (9, 9, 9)), kind)).astype(int) - 9).max() <= 1


def too_large(side: int, kind: str) -> bytes:
    """A file of one pixel that declares so many on each side."""
    data = bytearray(encoded(pillow().new("L", (1, 1)), kind))
    if kind == "JPEG":
        at = data.index(b"\xff\xc0") + 5  # the frame header: its length, the bits of a value, height, width
        data[at : at + 4] = struct.pack(">HH", side, side)
    else:
        data[16:24] = struct.pack(">II", side, side)
        data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    return bytes(data)


@pytest.mark.filterwarnings("ignore:Image size")  # Pillow warns, and mlxfp refuses
@pytest.mark.parametrize("side", [10_000, 20_000])
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_an_image_that_declares_too_many_pixels_is_not_unfolded(decoder: str, side: int, kind: str):
    dataset = fp.pipe(fp.from_examples([{"image": too_large(side, kind), "path": f"cats/1.{kind}"}]), fp.images.decode())
    with pytest.raises(
        DataError, match=rf"source row 0 \(cats/1\.{kind}\): the (image has {side:,} x|file cannot be decoded .*400000000 pixels)"
    ):
        list(dataset)


def test_a_file_with_another_suffix_is_what_its_bytes_say(tmp_path: Path):
    (tmp_path / "a.jpg").write_bytes(encoded(as_image(PIXELS[0])))
    (found,) = pixels_of(fp.pipe(fp.read_images(tmp_path), fp.images.decode()))
    assert np.array_equal(found, PIXELS[0])


def test_a_damaged_file_is_named(decoder: str):
    whole = encoded(as_image(PIXELS[0]), "JPEG")
    for damaged in (b"", b"nothing", whole[: len(whole) // 2], whole[:20], b"\xff\xd8\xff"):
        rows = [{"image": whole, "path": "cats/1.jpg"}, {"image": damaged, "path": "cats/2.jpg"}]
        message = r"images\.decode: column 'image' of source row 1 \(cats/2\.jpg\): the file cannot be decoded as an image: .* skip damaged"
        with pytest.raises(DataError, match=message):
            list(fp.pipe(fp.from_examples(rows), fp.images.decode()))
        with pytest.raises(DataError, match=r"source row 0 \(dogs/1\.jpg\): the file cannot be decoded"):
            list(fp.pipe(fp.from_examples([{"image": {"bytes": damaged, "path": "dogs/1.jpg"}}]), fp.images.decode()))


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore:Image size")  # Pillow warns of what it can ignore
@settings(deadline=None)
@given(
    kind=st.sampled_from(["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP"]),
    changes=st.lists(st.tuples(st.integers(0, 999), st.integers(0, 255)), min_size=1, max_size=8),
    cut=st.integers(0, 999),
)
def test_changed_bytes_give_an_image_or_an_error_that_names_the_row(kind, changes, cut):
    data = bytearray(encoded(as_image(smooth((12, 10, 3), 0)), kind))
    for place, value in changes:
        data[place % len(data)] = value
    assert outcome(bytes(data[: max(1, len(data) - cut % len(data))])) in ("an image", "images.decode: column 'image' of source row 0")


def outcome(data: bytes) -> str:
    try:
        assert shown(data).ndim == 3
    except DataError as error:
        return str(error)[:45]
    return "an image"


def test_images_that_are_decoded_into_the_same_memory_have_the_pixels_of_their_own():
    memory, shapes = files.Memory(), [(20, 30, 3), (5, 4, 1), (40, 30, 3), (2400, 2400, 3), (8, 8, 3)]  # 17 MB is not kept
    for number, shape in enumerate(shapes):
        data = encoded(as_image(smooth(shape, number)), "JPEG")
        for given_data in (data, memoryview(data)):
            found = read_file(given_data, None, "decode", memory)
            assert np.array_equal(found, read_file(data, None, "decode"))


@pytest.mark.parametrize(("mode", "expected"), [("rgb", [255, 0, 0]), ("grey", [76])])
@pytest.mark.parametrize("kind", ["CMYK", "LAB"])
def test_colours_of_prints_become_those_of_screens(kind: str, mode: Any, expected: list[int]):
    """A red picture in CMYK as JPEG and TIFF, and in LAB as TIFF."""
    pil, cms = pytest.importorskip("PIL.Image"), pytest.importorskip("PIL.ImageCms")
    if kind == "LAB":
        transform = cms.buildTransformFromOpenProfiles(cms.createProfile("sRGB"), cms.createProfile("LAB"), "RGB", "LAB")
        pictures = [encoded(cms.applyTransform(pil.new("RGB", (4, 4), (255, 0, 0)), transform), "TIFF")]
    else:
        pictures = [encoded(pil.new("CMYK", (4, 4), (0, 255, 255, 0)), name) for name in ("JPEG", "TIFF")]
    for data in pictures:
        assert np.abs(read_file(data, mode, "a test")[0, 0].astype(int) - expected).max() <= 5


@pytest.mark.parametrize("name", ["GIF", "PNG", "TIFF", "WEBP"])
def test_an_animation_or_a_file_of_pages_gives_its_first_picture(name: str):
    pil, file = pytest.importorskip("PIL.Image"), BytesIO()
    frames = [pil.new("RGB", (4, 4), colour) for colour in ("red", "lime", "blue")]
    frames[0].save(file, name, save_all=True, append_images=frames[1:])
    assert np.abs(read_file(file.getvalue(), "rgb", "a test")[0, 0].astype(int) - [255, 0, 0]).max() <= 2
