"""Class folders: no file is skipped and no label shifts in silence."""

from io import BytesIO
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pytest

import mlxfp as fp
from mlxfp.errors import ArgumentError, DataError, MissingFileError
from tests.data.sources.test_media_files import write, write_wave

NFC, NFD = normalize("NFC", "caf\u00e9"), normalize("NFD", "caf\u00e9")


def labels(folder: Path, **options: Any) -> list[tuple[str, int]]:
    return [(row["class"], row["label"]) for row in fp.read_images(folder, **options)]


def test_an_empty_class_folder_is_an_error_because_later_labels_would_shift(tmp_path: Path):
    """With ant, bee and cat in the training files, cat has label 2, and 1 in validation files without pictures of bee."""
    for part, kinds in {"train": "ant bee cat", "valid": "ant cat"}.items():
        write(tmp_path / part, {f"{kind}/1.png": b"1" for kind in kinds.split()})
    (tmp_path / "valid/bee").mkdir()
    with pytest.raises(DataError, match=r"no files to read: 'bee', in '.*valid.*classes=\['ant', 'bee', 'cat'\]\. Otherwise remove"):
        labels(tmp_path / "valid")
    classes = ["ant", "bee", "cat"]
    assert labels(tmp_path / "valid", classes=classes) == [("ant", 0), ("cat", 2)]
    assert labels(tmp_path / "train", classes=classes) == labels(tmp_path / "train")
    (tmp_path / "valid/bee").rmdir()
    assert labels(tmp_path / "valid", classes=classes) == [("ant", 0), ("cat", 2)]


def test_classes_give_the_order_of_the_labels_and_refuse_other_folders(tmp_path: Path):
    write(tmp_path, {"cat/1.png": b"1", "ant/1.png": b"1"})
    assert labels(tmp_path, classes=["cat", "dog", "ant"]) == [("ant", 2), ("cat", 0)]
    with pytest.raises(DataError, match=r"not among the classes: got 'cat', in .*Did you mean 'cats'\?.*Classes: 'ant', 'cats'"):
        labels(tmp_path, classes=["ant", "cats"])
    with pytest.raises(ArgumentError, match="classes repeats 'ant'"):
        fp.read_images(tmp_path, classes=["ant", "ant"])
    with pytest.raises(DataError, match=r"1 files outside class folders, such as '1\.png'"):
        list(fp.read_images(write(tmp_path / "flat", {"1.png": b"1"}), classes=["ant"]))
    assert fp.inspect.fingerprint(fp.read_images(tmp_path)) != fp.inspect.fingerprint(fp.read_images(tmp_path, classes=["cat", "ant"]))


def test_sound_folders_follow_the_same_rules(tmp_path: Path):
    for kind in ("no", "yes"):
        (tmp_path / kind).mkdir()
    write_wave(tmp_path / "yes" / "a.wav", np.zeros(9, "<i2"))
    with pytest.raises(DataError, match="no files to read: 'no'"):
        list(fp.read_audio(tmp_path))
    assert [row["label"] for row in fp.read_audio(tmp_path, classes=["no", "yes"])] == [1]


def test_folders_of_parts_are_not_classes(tmp_path: Path):
    write(tmp_path, {f"{part}/{kind}/1.png": b"1" for part in ("train", "valid") for kind in ("ant", "cat")})
    with pytest.raises(DataError, match=r"parts of a dataset instead of classes: got 'train', 'valid', in .*Read each part: '.*train'"):
        list(fp.read_images(tmp_path))
    assert [name for name, _ in labels(tmp_path, classes=["train", "valid"])] == ["train", "train", "valid", "valid"]
    write(tmp_path / "vehicles", {"train/1.png": b"1", "bus/1.png": b"1"})
    assert labels(tmp_path / "vehicles") == [("bus", 0), ("train", 1)]


def test_files_in_linked_folders_are_read(tmp_path: Path):
    """Folders of datasets are often links to one store."""
    write(tmp_path / "store", {"1.png": b"1", "deep/2.png": b"2"})
    write(tmp_path / "set", {"ant/1.png": b"1"})
    (tmp_path / "set" / "cat").symlink_to(tmp_path / "store")
    (tmp_path / "set" / "cat" / "up").symlink_to(tmp_path / "set")
    assert [row["path"] for row in fp.read_images(tmp_path / "set")] == ["ant/1.png", "cat/1.png", "cat/deep/2.png"]


def test_other_files_are_counted_with_an_example(tmp_path: Path):
    folder = write(tmp_path, {"a.png": b"1", "b.psd": b"1", "notes.txt": b"1", ".hidden": b"1"})
    assert "2 files with other suffixes are ignored, such as 'b.psd'" in str(fp.explain(fp.read_images(folder)))
    (folder / "a.png").unlink()
    with pytest.raises(MissingFileError, match=r"The folder has 2 other files, such as 'b\.psd'\. Check the path"):
        list(fp.read_images(folder))


def test_pictures_of_phones_are_read_or_named(tmp_path: Path):
    """JFIF and AVIF are decoded. HEIC needs a plugin of Pillow, so the error names the file."""
    image, features = pytest.importorskip("PIL.Image"), pytest.importorskip("PIL.features")
    for suffix in ("jfif", "jpe", *(["avif"] if features.check("avif") else [])):
        file = BytesIO()
        image.new("RGB", (8, 8), (200, 10, 10)).save(file, "AVIF" if suffix == "avif" else "JPEG")
        write(tmp_path, {f"a.{suffix}": file.getvalue()})
        (row,) = fp.pipe(fp.read_images(tmp_path), fp.images.resize((2, 2)))
        assert np.abs(np.array(row["image"])[0, 0].astype(int) - [200, 10, 10]).max() < 9
        (tmp_path / f"a.{suffix}").unlink()
    write(tmp_path, {"b.HEIC": b"\0\0\0\x18ftypheic" + bytes(99)})
    with pytest.raises(DataError, match=r"\(b\.HEIC\): the file cannot be decoded as an image: .* Convert the file to PNG"):
        list(fp.pipe(fp.read_images(tmp_path), fp.images.resize((2, 2))))


def test_sound_that_libsndfile_cannot_read_is_named(tmp_path: Path):
    write(tmp_path, {"a.m4a": b"\0\0\0\x18ftypM4A " + bytes(99)})
    with pytest.raises(DataError, match=r"cannot be decoded as sound: .*in '.*a\.m4a'.*ffmpeg -i old new\.wav"):
        list(fp.read_audio(tmp_path))


@pytest.mark.parametrize("form", ["AU", "CAF", "W64", "RF64", "AIFF", "WAV"])
def test_sound_files_that_end_early_are_errors_in_every_format(tmp_path: Path, form: str):
    """libsndfile reads the remaining samples without an error."""
    soundfile = pytest.importorskip("soundfile")
    file = BytesIO()
    soundfile.write(file, np.float32([0.5, -0.5, 0.25, 0.125] * 50), 8000, format=form, subtype="PCM_24")
    write(tmp_path, {f"a.{form.lower()}": file.getvalue()})
    assert next(iter(fp.read_audio(tmp_path)))["waveform"][:4] == [0.5, -0.5, 0.25, 0.125]
    for cut in (1, 3, 100, 599):
        write(tmp_path, {f"a.{form.lower()}": file.getvalue()[:-cut]})
        with pytest.raises(DataError, match=r"A file (ends early: got .* but the header declares|cannot be decoded)"):
            list(fp.read_audio(tmp_path))


def test_class_folders_with_the_same_letters_are_one_class(tmp_path: Path):
    """An archive from macOS writes file names in the Unicode form NFD."""
    write(tmp_path / "train", {f"{NFC}/1.png": b"1", "tea/1.png": b"1"})
    write(tmp_path / "test", {f"{NFD}/1.png": b"1", "tea/1.png": b"1"})
    assert labels(tmp_path / "train") == labels(tmp_path / "test") == [(NFC, 0), ("tea", 1)]
    assert labels(tmp_path / "test", classes=["tea", NFC]) == labels(tmp_path / "train", classes=["tea", NFD]) == [(NFC, 1), ("tea", 0)]
    with pytest.raises(ArgumentError, match=r"two names with the same letters in different Unicode forms: 'caf\\xe9' and 'cafe\\u0301'"):
        fp.read_images(tmp_path, classes=[NFC, NFD])


@pytest.mark.parametrize("known", [NFC, NFD])
@pytest.mark.parametrize("written", [NFC, NFD])
def test_class_names_of_collators_match_texts_with_the_same_letters(known: str, written: str):
    collator = fp.collators.text(pad_id=0, label="y", classes=["tea", known])
    rows = [{"input_ids": [1], "y": written}, {"input_ids": [1], "y": "tea"}]
    assert collator(rows)["labels"].tolist() == [1, 0]
    table = fp.from_table({"input_ids": [[1], [1]], "y": np.array([written, "tea"])})
    assert next(iter(fp.pipe(table, fp.batch(2), fp.collate(collator))))["labels"].tolist() == [1, 0]


@pytest.mark.parametrize("make", [fp.collators.text, fp.models.Classifier])
def test_two_class_names_with_the_same_letters_are_an_error(make: Any):
    arguments = {"pad_id": 0, "label": "y"} if make is fp.collators.text else {"body": None, "outputs": 2}
    with pytest.raises(ArgumentError, match="two names with the same letters in different Unicode forms"):
        make(**arguments, classes=[NFC, NFD])


@pytest.mark.parametrize("tensors", [False, True])
def test_numbers_with_names_that_are_other_numbers_are_an_error(tensors: bool):
    """With the classes 1, 2 and 3, the label 1 could be the first class by name, or the second class by index."""
    row = {"image": np.zeros((2, 2, 3), np.uint8)} if tensors else {"input_ids": [1]}

    def labelled(label: Any, classes: Any) -> list[int]:
        collator: Any = (
            fp.collators.vision(label="y", classes=classes) if tensors else fp.collators.text(pad_id=0, label="y", classes=classes)
        )
        return next(iter(fp.pipe(fp.from_examples([{**row, "y": label}]), fp.batch(1), fp.collate(collator))))["labels"].tolist()

    with pytest.raises(DataError, match=r"'y' of source row 0 holds a number, and the classes have numbers as names: '1', '2', '3'\."):
        labelled(1, ["1", "2", "3"])
    assert labelled("1", ["1", "2", "3"]) == [0]
    assert labelled(1, ["0", "1"]) == labelled(1, ["no", "yes"]) == labelled(1, 3) == [1]
