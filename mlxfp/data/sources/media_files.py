"""Image and sound files in folders, one row per file. A file is read when its row is needed."""

import os
from abc import abstractmethod
from collections.abc import Iterator
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
from mlxfp.data.file_search import files_below, is_data, readable, unreadable
from mlxfp.data.sound.decoding import MOST_RATE, SUFFIXES, check_installed, decode, resample
from mlxfp.data.sources.files import as_paths, look_up, show_call
from mlxfp.data.sources.remote_files import is_remote, is_shown, list_remote, read_remote
from mlxfp.data.sources.row_chunks import tasks_in_order
from mlxfp.support.checks import check_positive, check_utf8, explain_call
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, CursorError, DataError, MissingFileError

_FILES_AT_ONCE = 32  # Number of files per chunk. The number is small, because photographs are large and memory holds several chunks.


@explain_call
def read_images(path: str | Path) -> Dataset[Example]:
    """Read the images in a folder lazily, one row per file. A row holds the undecoded bytes of the file.

    The columns are `image` (binary, as needed by `collators.vision`) and `path` (string, relative to the folder, with /). If the images
    are in class folders, rows also have `class` (string, name of the first folder) and `label` (int64, index of the class in sorted
    order).

    Rows are sorted by path and have random access. Files with other suffixes and names that begin with a dot are ignored. The folder is
    listed once. Make a new dataset to see files added later. A remote folder, such as `s3://bucket/images`, needs the extra `remote`.
    The files of a chunk are fetched together.

    Reading raises `MissingFileError` for a missing folder or a folder without images. Reading raises `DataError` for an empty file, and if
    only some of the images are in class folders.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("cat/2.png", "cat/1.png", "ant/1.png"):
    ...         Path(folder, name).parent.mkdir(exist_ok=True)
    ...         _ = Path(folder, name).write_bytes(name.encode())
    ...     [(row["path"], row["label"]) for row in read_images(folder)]
    [('ant/1.png', 0), ('cat/1.png', 1), ('cat/2.png', 1)]

    See also: `read_audio`; `cache`, which stores many small files as one.
    """
    return Dataset(_ReadImages(path))


@explain_call
def read_audio(path: str | Path, *, rate: int | None = None) -> Dataset[Example]:
    """Read the sound files in a folder (WAV, FLAC, OGG, Opus, MP3, AIFF) lazily, one row per file. Needs the extra `audio`.

    The columns are `waveform` (list<float32>, from -1 to 1, averaged over channels), `rate` (int64, samples per second), `path`, and
    for class folders `class` and `label`. Paths, classes and remote folders work as in `read_images`. Integer samples are scaled to -1
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
    check_installed("read_audio", resampling=rate is not None)
    return Dataset(_ReadAudio(path, rate=rate))


def _as_folder(path: Any) -> str:
    if not isinstance(path, str | Path):
        raise ArgumentTypeError(
            f"path must be one folder, got {type(path).__name__}: {path!r:.60}. For several folders, join datasets with concat."
        )
    return as_paths(path)[0]


@frozen(repr=False)
class _MediaSource(Source):
    """Base class of sources for the files of a local or remote folder and its subfolders, one row per file.

    A subclass defines `suffixes`, `columns` and `parse`. A resume position is the number of files already read and the number of all
    files. The number of all files detects added and removed files.
    """

    path: str = field(repr=False, converter=_as_folder)
    suffixes: ClassVar[tuple[str, ...]]
    columns: ClassVar[dict[str, pa.DataType]]
    indexable = True
    traits = SourceTraits(costly=lambda: True, take_workers=frozenset({"threads", "processes"}))

    @abstractmethod
    def parse(self, data: bytes, path: str) -> dict[str, Any]:
        """Return the values of `columns` for one file with the content `data`."""

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
        root = Path(self.root)
        with readable(root):
            is_folder = root.is_dir()
        if not is_folder:
            reason = "The path is a file. Give its folder" if root.is_file() else "A relative path starts at the working folder"
            raise MissingFileError(f"There is no folder {str(root.absolute())!r}. {reason}.")
        below = (path for path in files_below(root) if path.suffix.lower() in self.suffixes and is_data(path))
        shown = tuple(sorted(filter(is_shown, (path.relative_to(root).as_posix() for path in below))))
        if not shown:
            raise MissingFileError(f"No file in the folder {str(root)!r} or below it ends in {', '.join(self.suffixes)}. Check the path.")
        for name in shown:
            check_utf8(name, "file")
        return shown

    @cached_property
    def classes(self) -> dict[str, int]:
        """Map each class name to its label. The mapping is empty if the files are not in class folders."""
        folders = sorted({name.partition("/")[0] for name in self.names if "/" in name})
        others = [name for name in self.names if "/" not in name]
        if folders and others:
            raise DataError(
                f"{self._locate('')!r} has class folders, but also {len(others)} files outside class folders, such as {others[0]!r}. "
                "Move these files into class folders, or to another folder."
            )
        return {name: label for label, name in enumerate(folders)}

    def schema(self) -> Schema:
        labels = {"class": pa.string(), "label": pa.int64()} if self.classes else {}
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
        kind = name.partition("/")[0]
        return {**row, "class": kind, "label": self.classes[kind]} if self.classes else row

    def __repr__(self) -> str:
        return show_call(super().__repr__(), (self.path,))


class _ReadImages(_MediaSource):
    __slots__ = ()
    suffixes = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
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
