"""Log-mel spectrograms as a stage before `batch`: the same batches as with the spectrogram in the collator, in any worker."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, SchemaError
from mlxfp.testing import laws

soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed: the extra audio")

MEL = fp.audio.LogMel(100, size=16, hop=4, mels=3)
WAVEFORMS = st.lists(st.lists(st.floats(-1, 1, width=32), max_size=40), min_size=1, max_size=6)


def rows_of(waveforms: list[list[float]], kind: pa.DataType) -> Any:
    return fp.from_table(pa.table({"waveform": pa.array(waveforms, kind), "label": list(range(len(waveforms)))}))


@given(WAVEFORMS, st.integers(1, 4), st.sampled_from([pa.float32(), pa.float64()]))
def test_batches_are_those_of_the_collator_with_the_spectrogram(waveforms: list[list[float]], size: int, kind: pa.DataType):
    rows = rows_of(waveforms, pa.list_(kind))
    before = fp.pipe(
        rows, fp.audio.log_mel(MEL), fp.batch(size), fp.collate(fp.collators.audio(features="features", label="label", pad_multiple=3))
    )
    after = fp.pipe(rows, fp.batch(size), fp.collate(fp.collators.audio(spectrogram=MEL, label="label", pad_multiple=3)))
    for one, other in zip(before, after, strict=True):
        assert list(one) == list(other)
        for name in one:
            assert one[name].dtype == other[name].dtype
            assert np.array_equal(np.array(one[name]), np.array(other[name])), name


@given(st.lists(st.lists(st.integers(-32768, 32767), max_size=20), min_size=1, max_size=4))
def test_16_bit_samples_are_scaled(waveforms: list[list[int]]):
    integers = fp.pipe(rows_of(waveforms, pa.list_(pa.int16())), fp.audio.log_mel(MEL))
    floats = fp.pipe(rows_of([[each / 32768 for each in row] for row in waveforms], pa.list_(pa.float32())), fp.audio.log_mel(MEL))
    assert list(integers) == list(floats)


@given(WAVEFORMS)
def test_the_laws_of_stages_hold(waveforms: list[list[float]]):
    dataset = fp.pipe(rows_of(waveforms, pa.list_(pa.float32())), fp.audio.log_mel(MEL))
    laws.assert_described(dataset)
    laws.assert_repeatable(dataset)
    laws.assert_pure_stages(dataset)
    laws.assert_resumable(dataset)
    laws.assert_plans_agree(dataset)
    laws.assert_random_access(dataset, np.array([0, len(waveforms) - 1]))


def test_the_stage_is_a_value_and_says_what_it_makes():
    stage = fp.audio.log_mel(MEL, features="mels", rate=None)
    laws.assert_value(stage)
    laws.assert_told_apart(stage, fp.audio.log_mel(MEL, features="mels"))
    schema = stage.schema(pa.schema({"id": pa.int64(), "waveform": pa.list_(pa.float32()), "label": pa.int32()}))
    assert schema.names == ["id", "mels", "label"]
    assert schema.field("mels").type == pa.list_(pa.list_(pa.float32(), 3))


def test_tensors_are_waveforms_too():
    tones = fp.from_table({"waveform": np.linspace(-1, 1, 60, dtype=np.float32).reshape(3, 20)})
    found = [row["features"] for row in fp.pipe(tones, fp.audio.log_mel(MEL))]
    assert np.array_equal(np.array(found, np.float32)[1], MEL.frames(np.array(tones[1]["waveform"]), np.array([0, 20]))[0])


def test_waveforms_are_cropped_first():
    rows = fp.from_examples([{"waveform": [0.5] * 50}, {"waveform": [0.5] * 3}])
    (made,) = fp.pipe(
        rows, fp.audio.crop_waveforms(27), fp.audio.log_mel(MEL), fp.batch(2), fp.collate(fp.collators.audio(features="features", length=7))
    )
    assert made["lengths"].tolist() == [7, 1]
    with pytest.raises(DataError, match=r"has 13 values, more than the padded length of 7.* with crop_waveforms before log_mel"):
        list(fp.pipe(rows, fp.audio.log_mel(MEL), fp.batch(2), fp.collate(fp.collators.audio(features="features", length=7))))


def test_a_rate_that_is_not_the_spectrograms_is_named_with_its_file(tmp_path: Path):
    for name, rate in (("a", 100), ("b", 8000)):
        soundfile.write(tmp_path / f"{name}.wav", np.zeros(200, np.int16), rate)
    with pytest.raises(DataError) as caught:
        list(fp.pipe(fp.read_audio(tmp_path), fp.audio.log_mel(MEL)))
    assert str(caught.value) == (
        "log_mel: column 'rate' of source row 1 (b.wav) holds 8000 samples per second, but the rate of the spectrogram is 100. "
        "Read all files at one rate: read_audio(folder, rate=100)."
    )
    (row,) = fp.pipe(fp.read_audio(tmp_path), fp.audio.log_mel(MEL), fp.on_error("skip"))
    assert row["path"] == "a.wav"
    assert [len(row["features"]) for row in fp.pipe(fp.read_audio(tmp_path, rate=100), fp.audio.log_mel(MEL))] == [51, 1]
    assert [len(row["features"]) for row in fp.pipe(fp.read_audio(tmp_path), fp.audio.log_mel(MEL, rate=None))] == [51, 51]


@pytest.mark.parametrize(
    ("row", "error", "message"),
    [
        ({"waveform": "text"}, SchemaError, r"log_mel needs lists or tensors \[T\] of numbers in column 'waveform', got string"),
        ({"sound": [0.5]}, SchemaError, "log_mel needs the column 'waveform', which is missing"),
        ({"waveform": [0.5], "features": 1}, SchemaError, "log_mel makes the column 'features', which already exists. Choose another name"),
        ({"waveform": [40000]}, DataError, "log_mel: column 'waveform' of source row 0 holds 40000, but integers must be 16-bit"),
        ({"waveform": [1e300]}, DataError, r"log_mel: column 'waveform' of source row 0 holds 1e\+300, beyond 32-bit floats"),
        ({"waveform": [0.5, None]}, DataError, "column 'waveform' of source row 0 holds a null in its list"),
    ],
)
def test_rows_that_do_not_fit_are_named(row: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        list(fp.pipe(fp.from_examples([row]), fp.audio.log_mel(MEL)))


def test_arguments_that_cannot_be_are_refused_at_once():
    with pytest.raises(ArgumentTypeError, match="spectrogram must be LogMel, got int"):
        fp.audio.log_mel(16000)
    with pytest.raises(ArgumentTypeError, match="waveform must be a string"):
        fp.audio.log_mel(MEL, waveform=0)
    with pytest.raises(ArgumentError, match="Remove spectrogram or features"):
        fp.collators.audio(spectrogram=MEL, features="features")


def test_a_worker_does_not_load_mlx():
    code = (
        "import sys, pickle; pickle.loads(bytes.fromhex(sys.argv[1])); assert not any(name.startswith('mlx.') or name == 'mlx' "
        "for name in sys.modules), [name for name in sys.modules if name.startswith('mlx')]"
    )
    subprocess.run([sys.executable, "-c", code, pickle.dumps(fp.audio.log_mel(MEL)).hex()], check=True)


def test_vectors_that_differ_in_size_are_named():
    rows = [{"features": [[1.0, 2.0], [3.0, 4.0]]}, {"features": [[1.0]]}]
    assert fp.collators.audio(features="features")(rows[:1])["features"].tolist() == [[[1.0, 2.0], [3.0, 4.0]]]
    with pytest.raises(DataError, match=r"column 'features' of row 1 of the group has a vector of 1 values, but the first .* has 2\."):
        fp.collators.audio(features="features")(rows)
    with pytest.raises(SchemaError, match=r"column 'features' must hold lists of lists of numbers, got list<item: double>\. Create the"):
        fp.collators.audio(features="features")([{"features": [1.0]}])
    tensor = fp.from_table({"features": np.arange(12, dtype=np.float32).reshape(2, 3, 2)})
    (made,) = fp.pipe(tensor, fp.batch(2), fp.collate(fp.collators.audio(features="features", pad_multiple=4)))
    assert made["features"].shape == (2, 4, 2)
    assert made["features"][1, :3].tolist() == [[6, 7], [8, 9], [10, 11]]
