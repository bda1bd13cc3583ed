"""Collators round decimals to float32, but never an integer, as readers do for declared types."""

import io

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import mlxfp as fp
from mlxfp.errors import ArgumentError, DataError, SchemaError


def png():
    file = io.BytesIO()
    Image.new("RGB", (2, 2)).save(file, "png")
    return file.getvalue()


COLLATORS = {
    "text": (fp.collators.text(pad_id=0, label="y", label_kind="value"), {"input_ids": [1]}),
    "vision": (fp.collators.vision(label="y", label_kind="value"), {"image": png()}),
    "vision of tensors": (fp.collators.vision(label="y", label_kind="value"), {"image": np.zeros((2, 2, 3), np.uint8)}),
    "audio": (fp.collators.audio(label="y", label_kind="value"), {"waveform": [0.5]}),
}
PIPES = {
    "list": lambda rows, collator: collator(rows),
    "pipeline": lambda rows, collator: next(iter(fp.pipe(fp.from_examples(rows), fp.batch(2), fp.collate(collator)))),
    "loaded": lambda rows, collator: next(iter(fp.pipe(fp.from_examples(rows), fp.load(), fp.batch(2), fp.collate(collator)))),
}


@pytest.mark.parametrize("way", PIPES)
@pytest.mark.parametrize("name", COLLATORS)
@pytest.mark.parametrize("label", [2**24 + 1, -(2**24) - 1, 2**31 - 1, [1, 2**24 + 1]])
def test_an_integer_label_beyond_the_exact_range_of_floats_is_an_error(way, name, label):
    collator, row = COLLATORS[name]
    first = [0, 0] if isinstance(label, list) else 0
    with pytest.raises(
        DataError, match=r"'y' of (source )?row 1.* holds -?\d+, beyond 16,777,216 \(2\*\*24\).*Scale the numbers, or convert to floats"
    ):
        PIPES[way]([{**row, "y": first}, {**row, "y": label}], collator)


@pytest.mark.parametrize("way", PIPES)
@pytest.mark.parametrize("name", COLLATORS)
@pytest.mark.parametrize("label", [2**24, -(2**24), 0.1, 1e-9, 123_456_789.5, 1e30, float("inf")])
def test_decimals_and_smaller_integers_are_labels_to_seven_digits(way, name, label):
    collator, row = COLLATORS[name]
    batch = PIPES[way]([{**row, "y": label}, {**row, "y": type(label)(0)}], collator)
    assert batch["labels"].dtype == mx.float32
    assert batch["labels"].tolist() == [np.float32(label), 0]


def test_a_class_in_a_column_of_floats_is_exact_or_refused():
    """float32 rounds 16777217.0 to 16777216.0 and 16777219.0 to 16777220.0, other classes."""
    collator, row = fp.collators.text(pad_id=0, label="y"), {"input_ids": [1]}
    assert collator([{**row, "y": 7.0}, {**row, "y": 2.0**24 - 1}])["labels"].tolist() == [7, 2**24 - 1]
    assert collator([{**row, "y": 2**24 + 1}])["labels"].tolist() == [2**24 + 1]
    for label, rounded in {2.0**24 + 1: 2.0**24, 16_777_219.0: 16_777_220.0}.items():
        with pytest.raises(DataError) as error:
            collator([{**row, "y": label}])
        assert str(error.value) == (
            f"collators.text: column 'y' of row 0 of the group holds {rounded}, but a class in a column of floats must be below 2**24, "
            "because float32 rounds larger integers. Convert to integers with map."
        )


def test_spectra_of_tensors_and_lists_follow_the_same_rule():
    collator = fp.collators.audio(features="f")
    for large in (np.array([[1, 2**24 + 1]]), [[1, 2**24 + 1]]):
        with pytest.raises(DataError, match=r"'f' of (source )?row 0.* holds 16777217, beyond 16,777,216"):
            collator([{"f": large}])
    tensor = pa.table({"f": pa.FixedShapeTensorArray.from_numpy_ndarray(np.array([[[0.5, 1e300]]]))})
    with pytest.raises(DataError, match=r"'f' of (source )?row 0.* holds 1e\+300, beyond 32-bit floats"):
        collator(next(iter(fp.pipe(fp.from_table(tensor), fp.batch(1)))))
    assert collator([{"f": np.array([[1, 2**24]])}])["features"].tolist() == [[[1, 2**24]]]


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("lists", [False, True])
def test_samples_of_eight_bits_are_not_read_as_sixteen_bits(kind, lists):
    """Unsigned samples of 8 bits have their silence at 128. As 16-bit samples, all sound would be near 0."""
    wave = np.array([0, 100, 127], kind)
    table = fp.from_table(pa.table({"waveform": pa.array([wave])})) if lists else fp.from_examples([{"waveform": wave}])
    with pytest.raises(SchemaError, match="'waveform' must hold floats or 16-bit samples, got"):
        next(iter(fp.pipe(table, fp.batch(1), fp.collate(fp.collators.audio()))))
    with pytest.raises(DataError, match=r"holds 8-bit samples \(u?int8\), but integers must be 16-bit samples\. Convert the samples"):
        list(fp.pipe(table, fp.audio.log_mel(fp.audio.LogMel(8000))))


@pytest.mark.parametrize(("mean", "std"), [([123.0], [58.0]), ([float("nan")], [1.0]), ([0.5], [float("nan")])])
def test_a_normalization_for_other_values_than_0_to_1_is_an_error(mean, std):
    with pytest.raises(
        ArgumentError, match=r"Every mean must be at most 1, because pixels have values from 0 to 1|Every std must be above 0"
    ):
        fp.collators.Normalization(mean=mean, std=std)
