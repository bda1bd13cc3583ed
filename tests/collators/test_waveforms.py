"""Waveforms to padded samples or spectrograms."""

import wave
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

import mlxfp as fp
from mlxfp.core.chunks import number_rows
from mlxfp.data.lengths.batching import batch
from mlxfp.support.errors import ArgumentTypeError, DataError, SchemaError
from tests.collators.groups import groups, view_of

MEL = fp.audio.LogMel(100, size=16, hop=4, mels=3)


@given(groups(["waveform"]))
def test_samples_are_padded_with_silence(rows: list[Any]):
    batch = fp.collators.audio()(view_of(rows))
    for place, row in enumerate(rows):
        found, mask = batch["waveforms"][place].tolist(), batch["mask"][place].tolist()
        count = len(row["waveform"])
        assert found == row["waveform"] + [0.0] * (len(found) - count)
        assert mask == [1] * count + [0] * (len(found) - count)
    assert batch["lengths"].tolist() == [len(row["waveform"]) for row in rows]
    assert [batch[name].dtype for name in ("waveforms", "lengths", "mask")] == [mx.float32, mx.int32, mx.int32]


@given(groups(["waveform"], longest=30))
def test_features_are_the_frames_of_each_waveform(rows: list[Any]):
    batch = fp.collators.audio(spectrogram=MEL, pad_multiple=3)(view_of(rows))
    assert batch["features"].shape[1] % 3 == 0
    for place, row in enumerate(rows):
        waveform = np.array(row["waveform"], np.float32)
        expected, _ = MEL.frames(waveform, np.array([0, len(waveform)]))
        found, count = np.array(batch["features"][place]), batch["lengths"][place].item()
        assert count == len(expected) == sum(batch["mask"][place].tolist())
        assert np.array_equal(found[:count], expected)
        assert not found[count:].any()


def test_integers_are_taken_as_16_bit_samples():
    expected = [[0.5, -1.0, 32767 / 32768]]
    for kind in (pa.int16(), pa.int32(), pa.int64()):
        view = fp.Examples(pa.record_batch({"waveform": pa.array([[16384, -32768, 32767]], pa.list_(kind))}))
        assert fp.collators.audio()(view)["waveforms"].tolist() == expected
    assert fp.collators.audio()([{"waveform": np.array([16384, -32768, 32767], np.int16)}])["waveforms"].tolist() == expected
    view = fp.Examples(number_rows(pa.record_batch({"waveform": [[0], [1, 40000]]}), 0, 5))
    with pytest.raises(DataError) as error:
        fp.collators.audio()(view)
    assert str(error.value) == (
        "collators.audio: column 'waveform' of source row 6 holds 40000, but integers must be 16-bit "
        "samples, -32768 to 32767. Convert other samples to floats between -1 and 1 with map before batch."
    )


def test_arrays_of_different_lengths_are_waveforms_too():
    rows = [{"waveform": np.array([0.5, 0.25])}, {"waveform": np.array([0.125])}]
    assert fp.collators.audio()(rows)["waveforms"].tolist() == [[0.5, 0.25], [0.125, 0.0]]


def test_a_rate_that_is_not_the_spectrograms_is_named_with_its_file():
    rows = [{"waveform": [0.5] * 9, "rate": rate, "path": path} for rate, path in ((100, "a.wav"), (8000, "deep/b.wav"))]
    assert fp.collators.audio(spectrogram=MEL)(rows[:1])["features"].shape == (1, 3, 3)
    with pytest.raises(DataError) as error:
        fp.collators.audio(spectrogram=MEL)(rows)
    assert str(error.value) == (
        "collators.audio: column 'rate' of row 1 of the group (deep/b.wav) holds 8000 samples per second, but the rate of the "
        "spectrogram is 100. Read all files at one rate: read_audio(folder, rate=100)."
    )
    with pytest.raises(
        DataError,
        match=r"row 1 of the group \(deep/b\.wav\) holds 8000 samples per second, but the rate of the first row of the group is 100",
    ):
        fp.collators.audio()(rows)
    assert fp.collators.audio(rate=None, spectrogram=MEL)(rows)["features"].shape == (2, 3, 3)
    renamed = [{"waveform": row["waveform"], "hertz": row["rate"]} for row in rows]
    assert fp.collators.audio()(renamed)["waveforms"].shape == (2, 9)
    with pytest.raises(DataError, match="column 'hertz' of row 1"):
        fp.collators.audio(rate="hertz")(renamed)


def test_rates_are_compared_in_a_pipeline_that_asks_for_nothing_else(tmp_path: Path):
    for name, rate in (("a", 100), ("b", 8000)):
        with wave.open(str(tmp_path / f"{name}.wav"), "wb") as file:
            file.setparams((1, 2, rate, 0, "NONE", ""))
            file.writeframes(bytes(40))
    with pytest.raises(
        DataError, match=r"column 'rate' of source row 1 \(b\.wav\) holds 8000 samples per second, but the rate of the spectrogram is 100"
    ):
        list(fp.pipe(fp.read_audio(tmp_path), batch(2), fp.collate(fp.collators.audio(spectrogram=MEL))))
    (made,) = fp.pipe(fp.read_audio(tmp_path, rate=100), batch(2), fp.collate(fp.collators.audio(spectrogram=MEL)))
    assert made["features"].shape == (2, 6, 3)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([[True]], r"collators.audio: column 'waveform' must hold floats or 16-bit samples, got list<item: bool>\."),
        ([0.5], r"column 'waveform' must hold lists of numbers, got double\."),
        ([[[0.5, 0.5]]], r"column 'waveform' must hold lists of numbers, got list<item: list<item: double>>\."),
    ],
)
def test_other_columns_are_refused(column: Any, message: str):
    with pytest.raises(SchemaError, match=message):
        fp.collators.audio()(fp.Examples(pa.record_batch({"waveform": column})))


def test_the_cure_of_a_waveform_that_is_too_long_cuts_it_to_what_fits():
    rows = [{"waveform": [0.5] * 50}]
    for collator, samples in (
        (fp.collators.audio(length=7), 7),
        (fp.collators.audio(length=7, spectrogram=MEL), 27),
        (fp.collators.audio(length=1, spectrogram=MEL), 3),
    ):
        with pytest.raises(DataError, match=rf"Cut the rows before batch with crop_waveforms\({samples}\)"):
            collator(rows)
        (made,) = fp.pipe(fp.from_examples(rows), fp.audio.crop_waveforms(samples), batch(1), fp.collate(collator))
        assert made["mask"].tolist() == [[1] * collator.lengths[0]]


def test_a_waveform_that_is_too_long_is_named():
    with pytest.raises(DataError, match=r"column 'waveform' of row 1 of the group has 3 values, more than the padded length of 2"):
        fp.collators.audio(length=2)([{"waveform": [0.5]}, {"waveform": [0.5] * 3}])
    with pytest.raises(DataError, match=r"has 4 values, more than the padded length of 3"):
        fp.collators.audio(length=3, spectrogram=MEL)([{"waveform": [0.5] * 12}])


def test_arguments_that_cannot_be_are_refused_at_once():
    with pytest.raises(ArgumentTypeError, match="spectrogram must be LogMel or NoneType, got int"):
        fp.collators.audio(spectrogram=16000)
    with pytest.raises(ArgumentTypeError, match="waveform must be a string"):
        fp.collators.audio(waveform=0)


def test_a_collator_prints_as_the_call_that_makes_it():
    assert repr(fp.collators.audio(label="digit", pad_multiple=80)) == "audio(label='digit', pad_multiple=80)"
