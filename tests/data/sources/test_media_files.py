"""Folders of images and sound: rows are files, sorted, labelled by their folder, read when they are asked for."""

import struct
import sys
import wave
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.execution import take_rows
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, CursorError, DataError, MissingExtraError, MissingFileError
from mlxfp.testing import laws

NAMES = st.text("aBz0 ._é漢", min_size=1, max_size=4).filter(lambda name: not name.startswith(".") and name.strip(" ."))


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def write_wave(path: Path, samples: np.ndarray, *, width: int = 2, channels: int = 1, rate: int = 8000) -> None:
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes(samples.tobytes())


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, st.binary(min_size=1, max_size=9), min_size=1, max_size=4), min_size=1, max_size=3))
def test_a_folder_of_images_obeys_the_laws_of_sources(classes: dict[str, dict[str, bytes]]):
    files = {f"{kind}/{name}.png": data for kind, found in classes.items() for name, data in found.items()}
    with TemporaryDirectory() as folder:
        dataset = fp.read_images(write(Path(folder), files))
        laws.assert_reads(dataset.source)
        laws.assert_value(dataset)
        laws.assert_described(dataset)
        laws.assert_resumable(dataset)
        laws.assert_random_access(dataset, np.array([0, len(files) - 1, 0]))
        kinds = sorted(classes)
        expected = [
            {"image": files[name], "path": name, "class": name.split("/")[0], "label": kinds.index(name.split("/")[0])}
            for name in sorted(files)
        ]
        assert list(dataset) == expected


def test_images_without_class_folders_have_no_label(tmp_path: Path):
    dataset = fp.read_images(write(tmp_path, {"b.JPG": b"2", "a.png": b"1", "notes.txt": b"x", ".hidden.png": b"x", ".git/c.png": b"x"}))
    assert list(dataset) == [{"image": b"1", "path": "a.png"}, {"image": b"2", "path": "b.JPG"}]
    assert repr(dataset) == f"pipe(read_images({str(tmp_path)!r}))"


def test_the_class_is_the_first_folder_however_deep_an_image_lies(tmp_path: Path):
    rows = list(fp.read_images(write(tmp_path, {"cat/white/1.png": b"1", "ant/2.png": b"2"})))
    assert [(row["class"], row["label"], row["path"]) for row in rows] == [("ant", 0, "ant/2.png"), ("cat", 1, "cat/white/1.png")]


def test_only_the_files_that_are_taken_are_read(tmp_path: Path):
    dataset = fp.read_images(write(tmp_path, {"a.png": b"1", "b.png": b""}))
    assert take_rows(dataset, 0, np.array([0]))["image"].to_pylist() == [b"1"]
    with pytest.raises(DataError, match=r"A file is empty: got 0 bytes, in '.*b\.png'\. Copy the file again"):
        list(dataset)


def test_building_reads_nothing_and_a_pickled_copy_looks_for_itself(tmp_path: Path):
    dataset = fp.read_images(tmp_path / "later")
    write(tmp_path, {"later/a.png": b"1"})
    assert len(list(dataset)) == 1


def test_a_change_of_the_files_is_noticed(tmp_path: Path):
    before = fp.read_images(write(tmp_path, {f"{i}.png": b"1" for i in range(70)}))
    version = before.source.version()
    (_, position), *_ = before.source.read(0, None)
    write(tmp_path, {"new.png": b"1"})
    assert before.source.version() != version
    with pytest.raises(CursorError, match="The files have changed since the cursor was made: there were 70, now 71"):
        list(fp.read_images(tmp_path).source.read(0, position))


@pytest.mark.parametrize("read", [fp.read_images, fp.read_audio])
def test_mistakes_about_folders_are_named(tmp_path: Path, read: Any):
    suffix = "png" if read is fp.read_images else "wav"
    with pytest.raises(MissingFileError, match=r"There is no folder '.*nothing'\. A relative path starts at the working folder\."):
        list(read(tmp_path / "nothing"))
    with pytest.raises(MissingFileError, match=rf"No file in the folder '.*' or below it ends in .*\.{suffix}.*\. Check the path\."):
        list(read(tmp_path))
    write(tmp_path, {f"a.{suffix}": b"1", f"cat/b.{suffix}": b"1"})
    with pytest.raises(MissingFileError, match=r"The path is a file\. Give its folder"):
        list(read(tmp_path / f"a.{suffix}"))
    with pytest.raises(DataError, match=rf"has class folders, but also 1 files outside class folders, such as 'a\.{suffix}'\."):
        list(read(tmp_path))
    with pytest.raises(ArgumentTypeError, match="path must be one folder, got list"):
        read([tmp_path])


@pytest.mark.parametrize(("width", "kind"), [(1, "u1"), (2, "<i2"), (4, "<i4")])
@given(data=st.data())
def test_samples_are_the_integers_divided_by_their_range(width: int, kind: str, data: st.DataObject):
    info = np.iinfo(kind)
    samples = np.array(data.draw(st.lists(st.integers(info.min, info.max), max_size=9)), kind)
    with TemporaryDirectory() as folder:
        write_wave(Path(folder, "a.wav"), samples, width=width)
        (row,) = fp.read_audio(folder)
    centred = samples.astype(np.float64) - (128 if width == 1 else 0)
    assert row["waveform"] == (centred / 2.0 ** (8 * width - 1)).astype(np.float32).tolist()


def test_samples_of_three_bytes_keep_their_sign(tmp_path: Path):
    write_wave(tmp_path / "a.wav", np.array([0, 0, 0x40, 0, 0, 0xC0, 0xFF, 0xFF, 0xFF], np.uint8), width=3)
    assert next(iter(fp.read_audio(tmp_path)))["waveform"] == [0.5, -0.5, float(np.float32(-1 / 2**23))]


def test_a_folder_of_many_rates_is_read_at_one(tmp_path: Path):
    for rate in (8000, 16000, 44100):
        write_wave(tmp_path / f"{rate}.wav", np.full(rate, 8192, "<i2"), rate=rate)
    assert [(row["rate"], len(row["waveform"])) for row in fp.read_audio(tmp_path)] == [(16000, 16000), (44100, 44100), (8000, 8000)]
    dataset = fp.read_audio(tmp_path, rate=16000)
    assert [(row["rate"], len(row["waveform"])) for row in dataset] == [(16000, 16000)] * 3
    assert repr(dataset) == f"pipe(read_audio({str(tmp_path)!r}, rate=16000))"
    assert fp.inspect.fingerprint(dataset) != fp.inspect.fingerprint(fp.read_audio(tmp_path))
    laws.assert_value(dataset)
    for rate in (0, 800_000):
        with pytest.raises(ArgumentError, match=r"rate must be at least 1|at most 768,000 samples per second, got rate=800,000"):
            fp.read_audio(tmp_path, rate=rate)


def test_several_channels_become_their_mean(tmp_path: Path):
    write_wave(tmp_path / "a.wav", np.array([16384, 0, -16384, 16384], "<i2"), channels=2, rate=44100)
    assert list(fp.read_audio(tmp_path)) == [{"waveform": [0.25, 0.0], "rate": 44100, "path": "a.wav"}]


def test_a_file_that_cannot_be_decoded_is_named_or_skipped(tmp_path: Path):
    for name in ("a", "b", "c"):
        write_wave(tmp_path / f"{name}.wav", np.zeros(100, "<i2"))
    whole = (tmp_path / "b.wav").read_bytes()
    (tmp_path / "b.wav").write_bytes(whole[:-50])
    with pytest.raises(DataError, match=r"A file ends early: got 150 bytes of sound but the header declares 200, in '.*b\.wav'\."):
        list(fp.read_audio(tmp_path))
    for damaged in (whole[:6], b"ID3 an mp3 file", b""):
        (tmp_path / "b.wav").write_bytes(damaged)
        with pytest.raises(DataError, match=r"A file (cannot be decoded as sound: .+|is empty: got 0 bytes), in '.*b\.wav'\. Co"):
            list(fp.read_audio(tmp_path))
        assert [row["path"] for row in fp.pipe(fp.read_audio(tmp_path), fp.on_error("skip"))] == ["a.wav", "c.wav"]


def test_a_folder_of_all_kinds_of_sound_becomes_one_batch(tmp_path: Path):
    soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed: the extra audio")
    kinds = [
        ("wav", "PCM_U8"),
        ("wav", "PCM_24"),
        ("wav", "FLOAT"),
        ("flac", "PCM_16"),
        ("ogg", "VORBIS"),
        ("mp3", None),
        ("aiff", "PCM_16"),
    ]
    for number, (suffix, subtype) in enumerate(kinds):
        rate, channels = (8000, 16000, 44100)[number % 3], 1 + number % 2
        sound = np.repeat(0.5 * np.sin(np.arange(rate) * 2 * np.pi * 440 / rate)[:, None], channels, axis=1)
        soundfile.write(tmp_path / f"{number}.{suffix}", sound, rate, subtype=subtype)
    rows = list(fp.read_audio(tmp_path, rate=16000))
    expected = 0.5 * np.sin(np.arange(16000) * 2 * np.pi * 440 / 16000)
    assert [(row["rate"], len(row["waveform"])) for row in rows] == [(16000, 16000)] * len(kinds)
    assert all(np.abs(np.array(row["waveform"]) - expected)[1000:-1000].max() < 0.05 for row in rows)
    mixed = fp.pipe(fp.read_audio(tmp_path), fp.batch(8), fp.collate(fp.collators.audio(spectrogram=fp.audio.LogMel(16000))))
    with pytest.raises(DataError, match=r"source row 0 \(0\.wav\) holds 8000 samples per second, but the rate of the spectrogram is 16000"):
        list(mixed)


def test_the_extra_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "soxr", None)
    assert isinstance(fp.read_audio(tmp_path), fp.Dataset)
    with pytest.raises(MissingExtraError, match=r'read_audio\(rate=\) needs soxr\. Install it with: pip install "mlxfp\[audio\]"'):
        fp.read_audio(tmp_path, rate=8000)
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(MissingExtraError, match=r'read_audio needs soundfile\. Install it with: pip install "mlxfp\[audio\]"'):
        fp.read_audio(tmp_path)
    monkeypatch.setitem(sys.modules, "scipy.fft", None)
    with pytest.raises(MissingExtraError, match=r'LogMel needs scipy\. Install it with: pip install "mlxfp\[audio\]"'):
        fp.audio.LogMel(16000)


def test_an_image_that_declares_a_huge_size_is_not_decoded(tmp_path: Path):
    pytest.importorskip("PIL.Image", reason="Pillow is not installed: the extra vision")
    size = struct.pack(">4sIIBBBBB", b"IHDR", 20_000, 20_000, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + size + struct.pack(">I", zlib.crc32(size))
    pixels = zlib.compress(b"\0" * 100)
    bomb += struct.pack(">I", len(pixels)) + b"IDAT" + pixels + struct.pack(">I", zlib.crc32(b"IDAT" + pixels))
    images = fp.pipe(fp.read_images(write(tmp_path, {"a.png": bomb})), fp.batch(1), fp.collate(fp.collators.vision(mode="rgb")))
    with pytest.raises(DataError, match=r"cannot be decoded as an image: Image size \(400000000 pixels\) exceeds limit"):
        list(images)


def test_real_images_are_read_shuffled_and_previewed(data_folder: Path):
    dataset = fp.read_images(data_folder / "cifar10")
    assert dataset.source.schema() == pa.schema({"image": pa.binary(), "path": pa.string(), "class": pa.string(), "label": pa.int64()})
    labels = dataset[:].column("label").to_pylist()
    assert sorted(set(labels)) == list(range(10))
    shuffled = list(fp.pipe(dataset, fp.shuffle(seed=0), fp.batch(32)))
    assert sorted(group_label for group in shuffled for group_label in group.column("label").to_pylist()) == labels
    assert all(row["image"].startswith(b"\xff\xd8") for group in shuffled for row in group)
    assert "airplane" in str(fp.inspect.preview(dataset))


def test_real_sound_is_read_and_batched(data_folder: Path):
    dataset = fp.read_audio(data_folder / "speech")
    rows = list(dataset)
    assert {row["rate"] for row in rows} == {8000}
    assert len(rows) == len(list((data_folder / "speech").glob("*.wav")))
    assert all(0 < max(map(abs, row["waveform"])) <= 1 for row in rows)
    assert {row["path"][0] for row in rows} == set("0123456789")
    assert len(list(fp.pipe(dataset, fp.batch(16)))) == -(-len(rows) // 16)
    assert "waveform" in str(fp.inspect.preview(dataset))
