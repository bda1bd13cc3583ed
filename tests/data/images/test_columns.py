"""Which columns hold images, and what comes out of them."""

import numpy as np
import pyarrow as pa
import pytest

from mlxfp.core.describing import schema
from mlxfp.core.pipelines import pipe
from mlxfp.data.images.cropping import center_crop
from mlxfp.data.images.decoding import decode
from mlxfp.data.images.flipping import random_flip
from mlxfp.data.images.resizing import resize, resize_short_side
from mlxfp.data.sources.in_memory import from_examples, from_table
from mlxfp.support.errors import DataError, SchemaError
from tests.data.images.pictures import PIXELS, as_image, encoded, files, pixels_of

RGB = pa.struct([("rgb", pa.large_binary()), ("height", pa.int32()), ("width", pa.int32())])
GREY = pa.struct([("grey", pa.large_binary()), ("height", pa.int32()), ("width", pa.int32())])


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ([decode()], RGB),
        ([decode(mode="grey")], GREY),
        ([random_flip(seed=0)], RGB),
        ([resize_short_side(8), decode(mode="grey")], GREY),
        ([resize((4, 6))], pa.fixed_shape_tensor(pa.uint8(), (4, 6, 3))),
        ([decode(mode="grey"), resize_short_side(8), center_crop((4, 6))], pa.fixed_shape_tensor(pa.uint8(), (4, 6, 1))),
        ([resize((4, 6)), resize_short_side(2)], pa.fixed_shape_tensor(pa.uint8(), (2, 3, 3))),
    ],
)
def test_the_schema_is_known_before_any_file_is_decoded(stages, expected):
    assert schema(pipe(from_examples([{"image": b"no image"}]), *stages)).field("image").type == expected


def test_files_may_be_columns_of_bytes_of_any_layout_or_those_of_hugging_face():
    some = [encoded(as_image(each)) for each in PIXELS]
    for column in (
        pa.array(some, pa.binary()),
        pa.array(some, pa.large_binary()),
        pa.array(some, pa.binary_view()),
        pa.array([{"bytes": data, "path": None} for data in some]),
    ):
        for table, expected in ((pa.table({"image": column}), PIXELS), (pa.table({"image": column}).slice(1), PIXELS[1:])):
            assert np.array_equal(pixels_of(pipe(from_table(table), decode())), expected)


def test_images_of_different_sizes_keep_their_pixels_through_other_stages():
    several = [PIXELS[0], PIXELS[1][:2], PIXELS[2][:, :1]]
    stored = pipe(files(several), decode()).source.take(0, np.arange(3))
    assert stored.num_rows == 3
    table = pipe(files(several), decode())
    again = from_table(pa.Table.from_batches([pa.RecordBatch.from_pylist([row], schema(table)) for row in table]))
    for dataset in (table, again, pipe(again, random_flip(seed=0, probability=0)), pipe(again, decode())):
        assert all(np.array_equal(*pair) for pair in zip(pixels_of(dataset), several, strict=True))
    grey = pixels_of(pipe(again, decode(mode="grey")))
    assert [pixels.shape for pixels in grey] == [(6, 5, 1), (2, 5, 1), (6, 1, 1)]


def test_tensors_of_two_axes_are_grey():
    dataset = pipe(from_table({"image": PIXELS[..., 0]}), random_flip(seed=0, probability=1))
    assert np.array_equal(pixels_of(dataset), PIXELS[..., ::-1, :1])


def test_other_columns_stay_and_no_row_is_no_problem():
    dataset = pipe(from_table({"image": PIXELS, "label": [3, 4, 5]}), resize((2, 2)))
    assert [row["label"] for row in dataset] == [3, 4, 5]
    for stage in (resize((2, 2)), decode()):
        for column in (pa.array([], pa.binary()), pa.array([], pa.fixed_shape_tensor(pa.uint8(), (2, 2)))):
            assert list(pipe(from_table(pa.table({"image": column})), stage)) == []


@pytest.mark.parametrize(
    ("column", "got"),
    [
        (np.zeros((1, 3, 8, 8), np.uint8), r"got .*\[3,8,8\].*\. Channels must be the last axis"),
        (np.zeros((1, 8), np.uint8), "or tensors uint8"),
        (np.zeros((1, 2, 2, 2, 2), np.uint8), "or tensors uint8"),
        (np.zeros((1, 8, 8), np.float32), "float"),
        (["a.jpg"], "got string"),
        ([[[1, 2]]], "got list<"),
    ],
)
def test_columns_that_hold_no_images_are_refused_before_any_row_is_read(column, got):
    with pytest.raises(SchemaError, match=rf"images\.resize: column 'image' must hold images: files as binary, .*{got}"):
        schema(pipe(from_table({"image": column}), resize((2, 2))))


def test_a_missing_column_and_a_missing_image_are_named():
    with pytest.raises(SchemaError, match=r"images\.decode needs the column 'picture', which is missing"):
        schema(pipe(from_table({"image": PIXELS}), decode(image="picture")))
    with pytest.raises(DataError, match=r"images\.decode: column 'image' of source row 1 is null"):
        list(pipe(from_examples([{"image": encoded(as_image(PIXELS[0]))}, {"image": None}]), decode()))
