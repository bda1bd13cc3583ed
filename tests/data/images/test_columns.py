"""Which columns hold images, and what comes out of them."""

import numpy as np
import pyarrow as pa
import pytest

import mlxfp as fp
from mlxfp.support.errors import DataError, SchemaError
from tests.data.images.pictures import PIXELS, as_image, encoded, files, pixels_of

RGB = pa.struct([("rgb", pa.large_binary()), ("height", pa.int32()), ("width", pa.int32())])
GREY = pa.struct([("grey", pa.large_binary()), ("height", pa.int32()), ("width", pa.int32())])


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ([fp.images.decode()], RGB),
        ([fp.images.decode(mode="grey")], GREY),
        ([fp.images.random_flip(seed=0)], RGB),
        ([fp.images.resize_short_side(8), fp.images.decode(mode="grey")], GREY),
        ([fp.images.resize((4, 6))], pa.fixed_shape_tensor(pa.uint8(), (4, 6, 3))),
        (
            [fp.images.decode(mode="grey"), fp.images.resize_short_side(8), fp.images.center_crop((4, 6))],
            pa.fixed_shape_tensor(pa.uint8(), (4, 6, 1)),
        ),
        ([fp.images.resize((4, 6)), fp.images.resize_short_side(2)], pa.fixed_shape_tensor(pa.uint8(), (2, 3, 3))),
    ],
)
def test_the_schema_is_known_before_any_file_is_decoded(stages, expected):
    assert fp.schema(fp.pipe(fp.from_examples([{"image": b"no image"}]), *stages)).field("image").type == expected


def test_files_may_be_columns_of_bytes_of_any_layout_or_those_of_hugging_face():
    some = [encoded(as_image(each)) for each in PIXELS]
    for column in (
        pa.array(some, pa.binary()),
        pa.array(some, pa.large_binary()),
        pa.array(some, pa.binary_view()),
        pa.array([{"bytes": data, "path": None} for data in some]),
    ):
        for table, expected in ((pa.table({"image": column}), PIXELS), (pa.table({"image": column}).slice(1), PIXELS[1:])):
            assert np.array_equal(pixels_of(fp.pipe(fp.from_table(table), fp.images.decode())), expected)


def test_images_of_different_sizes_keep_their_pixels_through_other_stages():
    several = [PIXELS[0], PIXELS[1][:2], PIXELS[2][:, :1]]
    stored = fp.pipe(files(several), fp.images.decode()).source.take(0, np.arange(3))
    assert stored.num_rows == 3
    table = fp.pipe(files(several), fp.images.decode())
    again = fp.from_table(pa.Table.from_batches([pa.RecordBatch.from_pylist([row], fp.schema(table)) for row in table]))
    for dataset in (table, again, fp.pipe(again, fp.images.random_flip(seed=0, probability=0)), fp.pipe(again, fp.images.decode())):
        assert all(np.array_equal(*pair) for pair in zip(pixels_of(dataset), several, strict=True))
    grey = pixels_of(fp.pipe(again, fp.images.decode(mode="grey")))
    assert [pixels.shape for pixels in grey] == [(6, 5, 1), (2, 5, 1), (6, 1, 1)]


def test_tensors_of_two_axes_are_grey():
    dataset = fp.pipe(fp.from_table({"image": PIXELS[..., 0]}), fp.images.random_flip(seed=0, probability=1))
    assert np.array_equal(pixels_of(dataset), PIXELS[..., ::-1, :1])


def test_other_columns_stay_and_no_row_is_no_problem():
    dataset = fp.pipe(fp.from_table({"image": PIXELS, "label": [3, 4, 5]}), fp.images.resize((2, 2)))
    assert [row["label"] for row in dataset] == [3, 4, 5]
    for stage in (fp.images.resize((2, 2)), fp.images.decode()):
        for column in (pa.array([], pa.binary()), pa.array([], pa.fixed_shape_tensor(pa.uint8(), (2, 2)))):
            assert list(fp.pipe(fp.from_table(pa.table({"image": column})), stage)) == []


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
        fp.schema(fp.pipe(fp.from_table({"image": column}), fp.images.resize((2, 2))))


def test_a_missing_column_and_a_missing_image_are_named():
    with pytest.raises(SchemaError, match=r"images\.decode needs the column 'picture', which is missing"):
        fp.schema(fp.pipe(fp.from_table({"image": PIXELS}), fp.images.decode(image="picture")))
    with pytest.raises(DataError, match=r"images\.decode: column 'image' of source row 1 is null"):
        list(fp.pipe(fp.from_examples([{"image": encoded(as_image(PIXELS[0]))}, {"image": None}]), fp.images.decode()))
