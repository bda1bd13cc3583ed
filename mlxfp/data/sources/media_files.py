"""Images and sound in folders: a row is a file, and files are read when their rows are."""

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
from mlxfp.data.sound.decoding import MOST_RATE, SUFFIXES, check_installed, decode, resample
from mlxfp.data.sources.files import as_paths, look_up, show_call
from mlxfp.data.sources.remote_files import is_remote, is_shown, list_remote, read_remote
from mlxfp.data.sources.row_chunks import tasks_in_order
from mlxfp.support.checks import check_positive, explain_call
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, CursorError, DataError, MissingFileError

_FILES_AT_ONCE = 32  # files of a chunk: photographs are large, memory holds a few chunks, and a worker takes about as many (`pools`)


@explain_call
def read_images(path: str | Path) -> Dataset[Example]:
    """Read the images in a folder, lazily: a row is a file, with its bytes as they are.

    Columns: `image` (binary, as `collators.vision` takes it) and `path` (string: below the folder, with /). Where the images are in class
    folders, also `class` (string: the name of the first folder) and `label` (int64: the index of the class among all, sorted by name).
    Rows are sorted by path, and can be taken in any order. Files with other suffixes, and those whose names start with a dot, are left out.
    The folder is listed once; to see files that were added later, make the dataset again. In a remote folder, as in `s3://bucket/images`
    (extra `remote`), the files of a chunk are fetched together.

    Reading raises `MissingFileError` where there is no such folder or no image in it, and `DataError` for an empty file, or where only some
    of the images are in class folders.

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
    """Read the files of sound in a folder (WAV, FLAC, OGG, Opus, MP3, AIFF), lazily: a row is a file. Needs the extra `audio`.

    Columns: `waveform` (list<float32>, from -1 to 1; the mean of several channels), `rate` (int64, samples per second), `path`, and `class`
    and `label` where the files are in class folders, all as for `read_images`; so are remote folders. 16-bit samples are divided by 32768,
    those of other widths likewise; floats stay as they are, also beyond -1 and 1. With `rate`, files of another rate are resampled to it
    (soxr, quality HQ); without it they keep theirs, and `log_mel` and `collators.audio` raise an error for rates that do not fit.

    Reading raises `MissingFileError` where there is no such folder or no such file in it, and `DataError` naming the file for one that is
    damaged, ends early or holds more than 2**28 samples, or where only some of the files are in class folders; `on_error("skip")` leaves
    damaged files out.

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
            raise ArgumentError(f"rate is in samples per second, at most {MOST_RATE:,}, got rate={rate:,}.")
    check_installed("read_audio", resampling=rate is not None)
    return Dataset(_ReadAudio(path, rate=rate))


def _as_folder(path: Any) -> str:
    if not isinstance(path, str | Path):
        raise ArgumentTypeError(f"path must be one folder, got {type(path).__name__}: {path!r:.60}. For several, join datasets by concat.")
    return as_paths(path)[0]


@frozen(repr=False)
class _MediaSource(Source):
    """The files in a local or remote folder and in the folders below it, a row for each. Names that start with a dot are left out.

    A format has `suffixes`, `columns`, and a `parse` that makes the values of these columns. Positions are the number of the next file
    and, to notice that files were added or removed, how many there are.
    """

    path: str = field(repr=False, converter=_as_folder)
    suffixes: ClassVar[tuple[str, ...]]
    columns: ClassVar[dict[str, pa.DataType]]
    indexable = True
    traits = SourceTraits(costly=lambda: True, taken_in=frozenset({"threads", "processes"}))

    @abstractmethod
    def parse(self, data: bytes, path: str) -> dict[str, Any]:
        """Make the columns of the content of a file."""

    @cached_property
    def root(self) -> str:
        return self.path.rstrip("/") if is_remote(self.path) else str(Path(self.path).expanduser())

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The paths of the files below the folder, with /. Found once: `take` is called too often to list a million files each time."""
        if is_remote(self.root):
            return tuple(file.path for file in list_remote(self.root, self.suffixes))
        root = Path(self.root)
        if not root.is_dir():
            reason = "It is a file; name the folder that it is in" if root.is_file() else "A relative path starts at the working folder"
            raise MissingFileError(f"There is no folder {str(root.absolute())!r}. {reason}.")
        below = (path for path in root.rglob("*") if path.suffix.lower() in self.suffixes and path.is_file())
        shown = tuple(sorted(filter(is_shown, (path.relative_to(root).as_posix() for path in below))))
        if not shown:
            raise MissingFileError(f"No file in the folder {str(root)!r} or below it ends in {', '.join(self.suffixes)}. Check the path.")
        return shown

    @cached_property
    def classes(self) -> dict[str, int]:
        """The label of each class; nothing where the files are not in class folders."""
        found = sorted({name.partition("/")[0] for name in self.names if "/" in name})
        others = [name for name in self.names if "/" not in name]
        if found and others:
            raise DataError(
                f"Some files are in class folders, but {len(others)} are not, such as {others[0]!r}, in {self._locate('')!r}. "
                "Move them into a class folder, or out of this folder."
            )
        return {name: label for label, name in enumerate(found)}

    def schema(self) -> Schema:
        labels = {"class": pa.string(), "label": pa.int64()} if self.classes else {}
        return pa.schema({**self.columns, "path": pa.string(), **labels})

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        return read_tasks(self.tasks(epoch, position))

    def tasks(self, epoch: int, position: Position) -> Tasks:
        first, count = (0, len(self.names)) if position is None else position
        if count != len(self.names):
            raise CursorError(
                f"The files have changed since the cursor was made: there were {count}, now {len(self.names)}, in {self!r}. Restore them, "
                "or start over."
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
        names = attrs.evolve(self).names  # of the files that there are now
        return tuple(look_up(Path(self.root, name))._replace(path=name).version for name in names)

    def _locate(self, name: str) -> str:
        return f"{self.root}/{name}" if is_remote(self.root) else self._before + name.replace("/", os.sep)

    @cached_property
    def _before(self) -> str:
        """What the path of a local file begins with."""
        return str(Path(self.root, "_"))[:-1]

    def _bytes(self, name: str) -> bytes:
        with open(self._locate(name), "rb", buffering=0) as file:  # noqa: PTH123  # a Path takes as long to make as a short file to read
            return file.readall()

    def _row(self, name: str, data: bytes) -> Example:
        path = self._locate(name)
        if not data:
            raise DataError(f"A file is empty: got 0 bytes, in {path!r}. Copy it again, or move it out of the folder.")
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
