"""Images to normalised arrays: what a few lines of Python do to each pixel, and what Pillow does."""

import re
import sys
from io import BytesIO
from typing import Any

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.chunks import number_rows
from mlxfp.data.images.pixels import in_mode
from mlxfp.data.lengths.batching import batch
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, MissingExtraError, SchemaError, UnknownNameError

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 6, 5, 3), dtype=np.uint8)


def tensors(pixels: np.ndarray, **more: Any) -> fp.Examples:
    column = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(pixels))
    return fp.Examples(number_rows(pa.record_batch({"image": column, **more}), 0, 20))


def images(batch: dict[str, Any]) -> np.ndarray:
    assert batch["images"].dtype == mx.float32
    return np.array(batch["images"])


@given(st.sampled_from([np.uint8, np.float16, np.float32, np.float64]), st.sampled_from([(4, 3), (4, 3, 1), (4, 3, 3)]), st.integers(0, 99))
def test_each_value_is_scaled_and_normalised_by_its_channel(dtype: Any, shape: tuple[int, ...], seed: int):
    random = np.random.default_rng(seed)
    values = random.integers(0, 256, (2, *shape)).astype(dtype) if dtype == np.uint8 else random.random((2, *shape)).astype(dtype)
    plain = values.reshape(2, 4, 3, -1) / (255.0 if dtype == np.uint8 else 1.0)
    assert np.array_equal(images(fp.collators.vision()(tensors(values))), plain.astype(np.float32))
    channels = plain.shape[-1]
    mean, std = random.random(channels), random.random(channels) + 0.1
    found = images(fp.collators.vision(normalization=fp.collators.Normalization(mean, std))(tensors(values)))
    assert found.shape == (2, 4, 3, channels)
    np.testing.assert_allclose(found, (plain - mean) / std, rtol=1e-5, atol=1e-5)


def test_labels_and_carried_columns_go_along():
    view = tensors(PIXELS, y=[2, 0, 1], name=["a", "b", "c"])
    batch = fp.collators.vision(label="y", classes=3, carry=["name"])(view)
    assert (batch["labels"].tolist(), batch["name"]) == ([2, 0, 1], ("a", "b", "c"))
    assert fp.collators.vision(label="y", label_kind="value")(view)["labels"].dtype == mx.float32
    with pytest.raises(DataError, match=r"column 'y' of source row 20 holds 2, outside the 2 classes"):
        fp.collators.vision(label="y", classes=2)(view)


def test_grey_becomes_colour_and_colour_grey():
    grey = images(fp.collators.vision(mode="grey")(tensors(PIXELS)))
    assert grey.shape == (3, 6, 5, 1)
    luma = PIXELS @ np.array([0.299, 0.587, 0.114])
    assert np.abs(grey[..., 0] * 255 - luma).max() <= 0.51  # rounded to whole numbers
    floats = images(fp.collators.vision(mode="grey")(tensors((PIXELS / 255).astype(np.float32))))
    np.testing.assert_allclose(floats[..., 0] * 255, luma, rtol=1e-5)
    back = images(fp.collators.vision(mode="rgb")(tensors(PIXELS[..., 0])))
    assert np.array_equal(back, np.repeat(PIXELS[..., :1], 3, axis=3) / np.float32(255))
    assert np.array_equal(images(fp.collators.vision(mode="rgb")(tensors(PIXELS))), images(fp.collators.vision()(tensors(PIXELS))))


def test_the_constants_are_those_of_the_field():
    assert list(fp.collators.NORMALIZATIONS) == ["cifar10", "imagenet", "mnist"]
    assert fp.collators.NORMALIZATIONS["imagenet"] == fp.collators.Normalization([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    with pytest.raises(UnknownNameError, match=r"No normalization is named 'imagnet'\. Did you mean 'imagenet'"):
        fp.collators.NORMALIZATIONS["imagnet"]


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        (np.zeros((1, 3, 8, 8), np.uint8), SchemaError, r"must be \[H, W\] or \[H, W, C\] with 1 or 3 channels, got \[3, 8, 8\]. Channels"),
        (np.zeros((1, 8), np.uint8), SchemaError, r"got \[8\]\."),
        (np.zeros((1, 8, 8), np.int32), SchemaError, r"an image in column 'image' must be uint8 or float, got int32\."),
        (np.full((1, 8, 8), 200.0), DataError, r"float pixels are numbers from 0 to 1, got 200 in column 'image'\. Divide the pixels"),
    ],
)
def test_tensors_that_are_no_images_are_refused(column: Any, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        fp.collators.vision()(tensors(column))


def test_other_columns_are_refused():
    with pytest.raises(SchemaError, match=r"or encoded images as binary, got list<item: list<item: int64>>\. NumPy arrays"):
        fp.collators.vision()([{"image": [[1, 2], [3, 4]]}])
    with pytest.raises(DataError, match="column 'image' of row 1 of the group is null"):
        fp.collators.vision()([{"image": b""}, {"image": None}])


def test_a_normalization_must_fit_the_images():
    with pytest.raises(DataError) as error:
        fp.collators.vision(normalization=fp.collators.NORMALIZATIONS["mnist"])(tensors(PIXELS))
    assert str(error.value) == (
        "collators.vision: the images in column 'image' have 3 channels, but Normalization(mean=(0.1307,), std=(0.3081,)) is for 1. "
        'Choose another normalization, or give mode="grey".'
    )
    with pytest.raises(ArgumentError, match=r"mode='rgb' gives images with 3 channels, but Normalization.* is for 1"):
        fp.collators.vision(normalization=fp.collators.NORMALIZATIONS["mnist"], mode="rgb")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"mode": "gray"}, UnknownNameError, "No mode is named 'gray'. Did you mean 'grey'"),
        ({"size": 32}, ArgumentError, r"size must be \(height, width\), got 32"),
        ({"size": (32, 0)}, ArgumentError, "width must be at least 1"),
        ({"normalization": "imagenet"}, ArgumentTypeError, "normalization must be a Normalization, got"),
        ({"image": None}, ArgumentTypeError, "image must be a string"),
    ],
)
def test_arguments_that_cannot_be_are_refused_at_once(options: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        fp.collators.vision(**options)


def test_a_normalization_that_cannot_be_is_refused():
    with pytest.raises(ArgumentError, match="1 or 3 channels, got 2 means and 2 standard deviations"):
        fp.collators.Normalization([0, 0], [1, 1])
    with pytest.raises(ArgumentError, match="got 1 means and 3 standard deviations"):
        fp.collators.Normalization([0], [1, 1, 1])
    with pytest.raises(ArgumentError, match=r"Every std must be above 0, got std=\(0\.0,\)"):
        fp.collators.Normalization([0], [0])


# --- encoded images and other sizes: Pillow does the work, so it is the reference too


def pillow() -> Any:
    return pytest.importorskip("PIL.Image", reason="decoding and resizing images needs Pillow: pip install 'mlxfp[vision]'")


def encoded(image: Any, kind: str = "PNG") -> bytes:
    buffer = BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def test_an_encoded_image_is_its_pixels():
    image = pillow()
    plain = images(fp.collators.vision()(tensors(PIXELS)))
    files = [encoded(image.fromarray(each)) for each in PIXELS]
    for column in (pa.array(files, pa.binary()), pa.array(files, pa.large_binary()), pa.array([{"bytes": f, "path": None} for f in files])):
        view = fp.Examples(pa.record_batch({"image": column}))
        assert np.array_equal(images(fp.collators.vision()(view)), plain)
        assert np.array_equal(images(fp.collators.vision()(list(view))), plain)
        assert np.array_equal(images(fp.collators.vision()(fp.Examples(view.chunk.slice(1)))), plain[1:])


def test_a_jpeg_is_what_pillow_decodes():
    image = pillow()
    files = [encoded(image.fromarray(each), "JPEG") for each in PIXELS]
    expected = np.stack([np.asarray(image.open(BytesIO(each))) for each in files])
    assert np.array_equal(images(fp.collators.vision()([{"image": each} for each in files])), expected / np.float32(255))


def test_the_file_of_a_row_is_named():
    rows = [{"image": b"nothing", "path": "cats/1.png"}]
    with pytest.raises(DataError, match=r"column 'image' of row 0 of the group \(cats/1\.png\): the file cannot be decoded"):
        fp.collators.vision()(rows)
    with pytest.raises(DataError, match=r"column 'image' of row 0 of the group \(dogs/2\.png\): the file cannot be decoded"):
        fp.collators.vision()([{"image": {"bytes": b"nothing", "path": "dogs/2.png"}}])
    dataset = fp.pipe(fp.from_examples(rows), batch(1), fp.collate(fp.collators.vision()))
    with pytest.raises(DataError, match=r"source row 0 \(cats/1\.png\)"):
        list(dataset)


def test_another_size_is_reached_as_pillow_does():
    image = pillow()
    expected = np.stack([np.asarray(image.fromarray(each).resize((4, 9), image.Resampling.BILINEAR)) for each in PIXELS])
    whole = np.round(images(fp.collators.vision(size=(9, 4))(tensors(PIXELS))) * 255)
    assert np.abs(whole - expected).max() <= 1
    files = [{"image": encoded(image.fromarray(each))} for each in PIXELS]
    assert np.array_equal(np.round(images(fp.collators.vision(size=(9, 4))(files)) * 255), whole)
    floats = images(fp.collators.vision(size=(9, 4))(tensors((PIXELS / 255).astype(np.float32))))
    assert np.abs(floats * 255 - expected).max() <= 1.01  # Pillow rounds uint8 after each of two passes
    assert np.array_equal(images(fp.collators.vision(size=(6, 5))(tensors(PIXELS))), images(fp.collators.vision()(tensors(PIXELS))))


def test_images_of_different_sizes_need_a_size():
    image = pillow()
    files = [{"image": encoded(image.fromarray(pixels))} for pixels in (PIXELS[0], PIXELS[1][:4])]
    assert images(fp.collators.vision(size=(2, 2))(files)).shape == (2, 2, 2, 3)
    with pytest.raises(DataError) as error:
        fp.collators.vision()(files)
    assert str(error.value) == (
        "collators.vision: column 'image' of row 1 of the group has the shape (4, 5, 3), but the first image has the shape (6, 5, 3). "
        "To make sizes equal, give size=(height, width). To make channels equal, give mode='rgb'."
    )


def test_a_damaged_file_is_named():
    whole = encoded(pillow().fromarray(PIXELS[0]), "JPEG")
    for damaged in (b"", b"nothing", whole[: len(whole) // 2]):
        with pytest.raises(
            DataError, match=r"column 'image' of row 1 of the group: the file cannot be decoded as an image: .*or skip damaged rows"
        ):
            fp.collators.vision()([{"image": whole}, {"image": damaged}])


def test_without_pillow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    for name in ("PIL", "PIL.Image"):
        monkeypatch.setitem(sys.modules, name, None)
    message = re.escape('collators.vision needs PIL. Install it with: pip install "mlxfp[vision]"')
    with pytest.raises(MissingExtraError, match=message):
        fp.collators.vision(size=(2, 2))
    with pytest.raises(MissingExtraError, match=message):
        fp.collators.vision()([{"image": b"x"}])
    assert images(fp.collators.vision()(tensors(PIXELS))).shape == (3, 6, 5, 3)


# --- after the stages of `fp.images`


def test_the_collator_takes_what_the_stages_give():
    files = fp.from_examples([{"image": encoded(pillow().fromarray(pixels))} for pixels in PIXELS])
    expected = images(fp.collators.vision()(tensors(PIXELS)))
    for stages in ([fp.images.decode()], [fp.images.random_flip(seed=0, probability=0)], [fp.images.resize((6, 5))], []):
        (made,) = fp.pipe(files, *stages, batch(3), fp.collate(fp.collators.vision()))
        assert np.array_equal(images(made), expected)
    (grey,) = fp.pipe(files, fp.images.decode(mode="grey"), batch(3), fp.collate(fp.collators.vision(mode="rgb", size=(6, 5))))
    assert np.array_equal(images(grey), images(fp.collators.vision(mode="rgb")(tensors(in_mode(PIXELS, "grey")))))


def test_stages_and_the_collator_give_the_same_pixels():
    files = fp.from_examples([{"image": encoded(pillow().fromarray(pixels))} for pixels in PIXELS])
    for size in ((4, 7), (12, 3)):
        (stages,) = fp.pipe(files, fp.images.resize(size), batch(3), fp.collate(fp.collators.vision()))
        (collator,) = fp.pipe(files, batch(3), fp.collate(fp.collators.vision(mode="rgb", size=size)))
        assert np.array_equal(images(stages), images(collator))


@pytest.mark.parametrize("stages", [[], [fp.images.resize((6, 5))], [fp.shuffle(seed=0)]])
def test_batches_made_in_another_thread_are_concrete(stages: list[Any]):
    dataset = fp.pipe(
        fp.from_table({"image": PIXELS}),
        *stages,
        batch(2),
        fp.collate(fp.collators.vision(normalization=fp.collators.NORMALIZATIONS["imagenet"])),
        fp.prefetch(2),
    )
    for made in dataset:
        assert np.isfinite(np.array(made["images"] + 1)).all()  # an array that is still to be computed cannot leave its thread
