"""Image and sound files in folders, one row per file. A file is read when its row is needed."""

import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import attrs
import numpy as np
import pyarrow as pa
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.core.chunks import Example, RecordBatch, Schema, from_rows
from mlxfp.core.datasets import Dataset
from mlxfp.core.sources import Position, Source, SourceTraits, Tasks, read_tasks
from mlxfp.data.file_search import is_data, readable, unreadable, walk_files
from mlxfp.data.sound.decoding import MOST_RATE, SUFFIXES, decode, resample
from mlxfp.data.sources.files import as_paths, look_up, show_call
from mlxfp.data.sources.remote_files import is_remote, is_shown, list_remote, read_remote
from mlxfp.data.sources.row_chunks import tasks_in_order
from mlxfp.support.checks import as_class_names, check_positive, check_utf8, explain_call, in_nfc
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, CursorError, DataError, MissingFileError, listed, suggest
from mlxfp.support.optional import optional

# Usual names of the folders for training, validation and test data.
_PARTS = frozenset(["dev", "test", "testing", "train", "training", "val", "valid", "validation"])
_IMAGES: tuple[str, ...] = (".apng", ".avif", ".bmp", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".mpo", ".pbm", ".pgm", ".png")
_IMAGES += (".pnm", ".ppm", ".tga", ".tif", ".tiff", ".webp")
_IMAGES += (".heic", ".heif", ".jxl")  # formats that Pillow reads only with a plugin
_FILES_AT_ONCE = 32  # Number of files per chunk. The number is small, because photographs are large and memory holds several chunks.


@explain_call
def read_images(path: str | Path, *, classes: Sequence[str] = ()) -> Dataset[Example]:
    """Read the images in a folder lazily, one row per file. A row holds the undecoded bytes of the file.

    The columns are `image` (binary, as needed by `collators.vision`) and `path` (string, relative to the folder, with /). If the images
    are in class folders, rows also have `class` (string, name of the first folder in the Unicode form NFC) and `label` (int64, index of
    the class in sorted order).

    The argument `classes` lists all class names, and `label` is then an index in this list. Pass the same list for training and test
    images, because the test images may lack a class: `classes=sorted(os.listdir("train"))`. A folder with a name outside the list raises
    an error. Without `classes`, an empty class folder raises an error.

    Rows are sorted by path and have random access. Links to folders are followed. Files with other suffixes and names that begin with a dot
    are ignored; `explain` counts the ignored files. HEIC and JPEG XL files need a plugin of Pillow. The folder is listed once. Make a new
    dataset to see files added later. A remote folder, such as `s3://bucket/images`, needs the extra `remote`. The files of a chunk are
    fetched together.

    Reading raises `MissingFileError` for a missing folder or a folder without images. Reading raises `DataError` for an empty file, if
    only some of the images are in class folders, and if the first folders are parts, such as train and test, instead of classes.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("cat/2.png", "cat/1.png", "ant/1.png"):
    ...         Path(folder, name).parent.mkdir(exist_ok=True)
    ...         _ = Path(folder, name).write_bytes(name.encode())
    ...     [(row["path"], row["label"]) for row in read_images(folder)]
    [('ant/1.png', 0), ('cat/1.png', 1), ('cat/2.png', 1)]

    See also: `read_audio`; `cache`, which stores many small files as one.
    """
    return Dataset(_ReadImages(path, classes=as_class_names(classes)))


@explain_call
def read_audio(path: str | Path, *, rate: int | None = None, classes: Sequence[str] = ()) -> Dataset[Example]:
    """Read the sound files in a folder (WAV, FLAC, OGG, Opus, MP3, AIFF) lazily, one row per file. Needs the extra `audio`.

    The columns are `waveform` (list<float32>, from -1 to 1, averaged over channels), `rate` (int64, samples per second), `path`, and
    for class folders `class` and `label`. Paths, `classes` and remote folders work as in `read_images`. Integer samples are scaled to -1
    to 1: 16-bit samples, for example, are divided by 32768. Float samples are unchanged, also beyond -1 and 1.

    With `rate`, files with another rate are resampled (soxr, quality HQ). Without `rate`, files keep their rates, and `log_mel` and
    `collators.audio` raise an error for unequal rates.

    Reading raises `MissingFileError` for a missing folder or a folder without sound files. Reading raises `DataError` with the file for
    damaged or truncated files, for more than 2**28 samples, and if only some of the files are in class folders. `on_error("skip")` skips
    damaged files.

    >>> import wave
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with wave.open(f"{folder}/a.wav", "wb") as file:
    ...         file.setparams((1, 2, 8000, 0, "NONE", ""))
    ...         file.writeframes(np.array([0, 16384, -32768], "<i2").tobytes())
    ...     list(read_audio(folder))
    [{'waveform': [0.0, 0.5, -1.0], 'rate': 8000, 'path': 'a.wav'}]

    See also: `log_mel` for spectrograms, `crop_waveforms`, `collators.audio`, which pads.
    """
    if rate is not None:
        check_positive(rate=rate)
        if rate > MOST_RATE:
            raise ArgumentError(f"rate must be at most {MOST_RATE:,} samples per second, got rate={rate:,}.")
        optional("soxr", extra="audio", needed_by="read_audio(rate=)")
    optional("soundfile", extra="audio", needed_by="read_audio")
    return Dataset(_ReadAudio(path, rate=rate, classes=as_class_names(classes)))


def _as_folder(path: Any) -> str:
    if not isinstance(path, str | Path):
        raise ArgumentTypeError(
            f"path must be one folder, got {type(path).__name__}: {path!r:.60}. For several folders, join datasets with concat."
        )
    return as_paths(path)[0]


def _class_of(name: str) -> str:
    """Return the class of a file: the first folder of its path, in the Unicode form NFC."""
    return in_nfc(name.partition("/")[0])


@frozen(repr=False)
class _MediaSource(Source):
    """Base class of sources for the files of a local or remote folder and its subfolders, one row per file.

    A subclass defines `suffixes`, `columns` and `parse`. A resume position holds the number of files already read, and the number
    of all files. Reading raises an error if the folder now has another number of files.
    """

    path: str = field(repr=False, converter=_as_folder)
    classes: tuple[str, ...] = field(default=(), kw_only=True)
    suffixes: ClassVar[tuple[str, ...]]
    columns: ClassVar[dict[str, pa.DataType]]
    indexable = True

    @abstractmethod
    def parse(self, data: bytes, path: str) -> dict[str, Any]:
        """Return the values of `columns` for one file with the content `data`."""

    @property
    def traits(self) -> SourceTraits:
        return SourceTraits(
            costly=lambda: True,
            take_workers=frozenset({"threads", "processes"}),
            contents=lambda: f"{len(self.names):,} files",
            notes=self._notes,
        )

    @cached_property
    def root(self) -> str:
        return self.path.rstrip("/") if is_remote(self.path) else str(Path(self.path).expanduser())

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Paths of the files relative to the folder, with / as separator.

        Cached, because `take` is called often and a folder may hold a million files.
        """
        if is_remote(self.root):
            return tuple(file.path for file in list_remote(self.root, self.suffixes))
        names, others = self._listed
        if not names:
            more = f" The folder has {len(others)} other files, such as {others[0]!r}." if others else ""
            raise MissingFileError(
                f"No file in the folder {self.root!r} or below it ends in {', '.join(self.suffixes)}.{more} Check the path."
            )
        for name in names:
            check_utf8(name, "file")
        return names

    @cached_property
    def _listed(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Paths of the files in a local folder, as two tuples: files with one of the `suffixes`, and all other files."""
        root = Path(self.root)
        with readable(root):
            is_folder = root.is_dir()
        if not is_folder:
            reason = "The path is a file. Give its folder" if root.is_file() else "A relative path starts at the working folder"
            raise MissingFileError(f"There is no folder {str(root.absolute())!r}. {reason}.")
        names, others = list[str](), list[str]()
        for path in walk_files(root):
            wanted = path.suffix.lower() in self.suffixes and is_data(path)
            (names if wanted else others).append(path.relative_to(root).as_posix())
        return tuple(sorted(names)), tuple(sorted(others))

    @cached_property
    def labels(self) -> dict[str, int]:
        """Map each class name, in the Unicode form NFC, to its label. The mapping is empty if the files are not in class folders."""
        folders = sorted({_class_of(name) for name in self.names if "/" in name})
        others = [name for name in self.names if "/" not in name]
        if (folders or self.classes) and others:
            raise DataError(
                f"{self._locate('')!r} has class folders, but also {len(others)} files outside class folders, such as {others[0]!r}. "
                "Move these files into class folders, or to another folder."
            )
        known = {in_nfc(name): label for label, name in enumerate(self.classes or folders)}
        if unknown := [name for name in folders if name not in known]:
            raise DataError(
                f"A class folder is not among the classes: got {unknown[0]!r}, in {self._locate('')!r}.{suggest(unknown[0], self.classes)} "
                f"Classes: {listed(map(repr, self.classes))}. Rename the folder, or add the name to classes=."
            )
        if folders and not self.classes:
            self._check_folders(folders)
        return known

    def _check_folders(self, folders: Sequence[str]) -> None:
        """Raise `DataError` if the folders are probably not the classes: a folder without files, or folders such as train and test."""
        if _PARTS.issuperset(map(str.lower, folders)) and all(name.count("/") > 1 for name in self.names):
            raise DataError(
                f"The first folders are parts of a dataset instead of classes: got {listed(map(repr, folders))}, in {self._locate('')!r}. "
                f"Read each part: {self._locate(folders[0])!r}. If the names are classes, list the names: classes={list(folders)}."
            )
        if is_remote(self.root):  # Remote stores such as S3 have no empty folders.
            return
        below = sorted(in_nfc(path.name) for path in Path(self.root).iterdir() if is_shown(path.name) and path.is_dir())
        if empty := [name for name in below if name not in folders]:
            raise DataError(
                f"A class folder has no files to read: {empty[0]!r}, in {self._locate('')!r}. If other files "
                f"of the dataset, such as train, have this class, pass all names: classes={below!r:.200}. Otherwise remove the folder."
            )

    def _notes(self) -> tuple[str, ...]:
        """Return a note for `explain` about files with unsupported suffixes."""
        others = () if is_remote(self.root) or not Path(self.root).is_dir() else self._listed[1]
        return (f"{len(others)} files with other suffixes are ignored, such as {others[0]!r}",) if others else ()

    def schema(self) -> Schema:
        labels = {"class": pa.string(), "label": pa.int64()} if self.labels else {}
        return pa.schema({**self.columns, "path": pa.string(), **labels})

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        return read_tasks(self.tasks(epoch, position))

    def tasks(self, epoch: int, position: Position) -> Tasks:
        first, count = (0, len(self.names)) if position is None else position
        if count != len(self.names):
            raise CursorError(
                f"The files have changed since the cursor was made: there were {count}, now {len(self.names)}, in {self!r}. Restore the "
                "files, or start without a cursor."
            )
        for task, stop in tasks_in_order(self, epoch, first, _FILES_AT_ONCE):
            yield task, (stop, count)

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        names = [self.names[index] for index in indices.tolist()]
        contents = read_remote(self.root, names) if is_remote(self.root) else map(self._bytes, names)
        return from_rows([self._row(name, data) for name, data in zip(names, contents, strict=True)], self.schema(), indices)

    def length(self) -> int:
        return len(self.names)

    def version(self) -> tuple[tuple[str, int, int], ...]:
        if is_remote(self.root):
            return tuple(file.version for file in list_remote(self.root, self.suffixes))
        names = attrs.evolve(self).names  # `evolve` returns a copy without cached file names, so that the folder is listed again.
        return tuple(look_up(Path(self.root, name))._replace(path=name).version for name in names)

    def _locate(self, name: str) -> str:
        return f"{self.root}/{name}" if is_remote(self.root) else self._before + name.replace("/", os.sep)

    @cached_property
    def _before(self) -> str:
        """Path of a local folder, with a path separator at the end."""
        return str(Path(self.root, "_"))[:-1]

    def _bytes(self, name: str) -> bytes:
        path = self._locate(name)
        try:
            with open(path, "rb", buffering=0) as file:  # noqa: PTH123  # making a Path takes as long as reading a short file
                return file.readall()
        except OSError as error:
            raise unreadable(error, path) from error

    def _row(self, name: str, data: bytes) -> Example:
        path = self._locate(name)
        if not data:
            raise DataError(f"A file is empty: got 0 bytes, in {path!r}. Copy the file again, or move it out of the folder.")
        row = {**self.parse(data, path), "path": name}
        kind = _class_of(name)
        return {**row, "class": kind, "label": self.labels[kind]} if self.labels else row

    def __repr__(self) -> str:
        return show_call(super().__repr__(), (self.path,))


class _ReadImages(_MediaSource):
    __slots__ = ()
    suffixes = _IMAGES
    columns: ClassVar[dict[str, pa.DataType]] = {"image": pa.binary()}

    def parse(self, data: bytes, path: str) -> dict[str, Any]:
        return {"image": data}


@frozen(repr=False)
class _ReadAudio(_MediaSource):
    rate: int | None = field(default=None, kw_only=True)
    suffixes = SUFFIXES
    columns: ClassVar[dict[str, pa.DataType]] = {"waveform": pa.list_(pa.float32()), "rate": pa.int64()}

    def parse(self, data: bytes, path: str) -> dict[str, Any]:
        waveform, rate = decode(data, path)
        return {"waveform": waveform if self.rate is None else resample(waveform, rate, self.rate, path), "rate": self.rate or rate}
