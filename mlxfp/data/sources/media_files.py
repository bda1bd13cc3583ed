"""Images and sound in folders: a row is a file, and files are read when their rows are."""

import wave
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
from mlxfp.core.errors import ArgumentTypeError, CursorError, DataError, MissingFileError
from mlxfp.core.sources import Position, Source
from mlxfp.data.sources.files import FileStamp, as_paths, show_call
from mlxfp.data.sources.remote_files import is_remote, list_remote, read_remote

_FILES_AT_ONCE = 64  # files of a chunk: photographs are large, and memory holds a few chunks


def read_images(path: str | Path) -> Dataset[Example]:
    """Read the images in a folder, lazily: a row is a file, its bytes as they are.

    Columns: `image` (binary, as `collators.vision` takes it) and `path` (below the folder, with /). Where the images lie in folders, one
    for each class, also `class` (the folder's name) and `label` (int64, the place of the class among all of them, sorted by name). Rows
    are sorted by path, and can be taken in any order. Files of other suffixes, and those whose names start with a dot, are left out. The
    folder is listed once; for files that came later, make the dataset anew. It may be elsewhere, as in `s3://bucket/images` (extra
    `remote`): the files of a chunk are then fetched at once.

    Reading raises `MissingFileError` where there is no such folder or no image in it, `DataError` for an empty file, and where some images
    lie in class folders and others beside them.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("cat/2.png", "cat/1.png", "ant/1.png"):
    ...         Path(folder, name).parent.mkdir(exist_ok=True)
    ...         _ = Path(folder, name).write_bytes(name.encode())
    ...     [(row["path"], row["label"]) for row in read_images(folder)]
    [('ant/1.png', 0), ('cat/1.png', 1), ('cat/2.png', 1)]

    See also: `read_audio`; `cache`, which keeps many small files as one.
    """
    return Dataset(_ReadImages(_as_folder(path)))


def read_audio(path: str | Path) -> Dataset[Example]:
    """Read the WAV files in a folder, lazily: a row is a file.

    Columns: `waveform` (list<float32>, from -1 to 1; of several channels, their mean), `rate` (int64, samples a second), `path`, and
    `class` and `label` where the files lie in folders, all as for `read_images`, also of a folder elsewhere. Samples are integers of 8 to
    32 bits (PCM).

    Reading raises `MissingFileError` where there is no such folder or no WAV file in it, and `DataError` naming the file for one that is
    damaged or holds something else.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with wave.open(str(Path(folder, "a.wav")), "wb") as file:
    ...         file.setparams((1, 2, 8000, 0, "NONE", ""))
    ...         file.writeframes(np.array([0, 16384, -32768], "<i2").tobytes())
    ...     list(read_audio(folder))
    [{'waveform': [0.0, 0.5, -1.0], 'rate': 8000, 'path': 'a.wav'}]

    See also: `collators.audio`, which pads waveforms or makes spectrograms.
    """
    return Dataset(_ReadAudio(_as_folder(path)))


def _as_folder(path: Any) -> str:
    if not isinstance(path, str | Path):
        raise ArgumentTypeError(f"path must be one folder, got {type(path).__name__}: {path!r:.60}. For several, join datasets by concat.")
    return as_paths(path)[0]


@frozen(repr=False)
class _MediaFolder(Source):
    """Positions are the number of the next file and, to notice that files came or went, how many there are."""

    folder: str = field(repr=False)
    suffixes: ClassVar[tuple[str, ...]]
    kinds: ClassVar[dict[str, pa.DataType]]

    @abstractmethod
    def parse(self, data: bytes, path: str) -> dict[str, Any]:
        """Make columns of the content of a file."""

    @property
    def indexable(self) -> bool:
        return True

    @cached_property
    def root(self) -> str:
        return self.folder.rstrip("/") if is_remote(self.folder) else str(Path(self.folder).expanduser())

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The files below the folder, with /. Looked up once: `take` is called too often to list a million files each time."""
        if is_remote(self.root):
            return tuple(name for name, _, _ in list_remote(self.root, self.suffixes))
        return _list(Path(self.root), self.suffixes)

    @cached_property
    def classes(self) -> dict[str, int]:
        found = sorted({name.partition("/")[0] for name in self.names if "/" in name})
        beside = [name for name in self.names if "/" not in name]
        if found and beside:
            raise DataError(
                f"Some files lie in a folder of their class and {len(beside)} beside these, such as {beside[0]!r}, in {self.root!r}. "
                "Move them into a folder, or out of this one."
            )
        return {name: label for label, name in enumerate(found)}

    def schema(self) -> Schema:
        labels = {"class": pa.string(), "label": pa.int64()} if self.classes else {}
        return pa.schema({**self.kinds, "path": pa.string(), **labels})

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        first, count = (0, len(self.names)) if position is None else position
        if count != len(self.names):
            raise CursorError(
                f"The files have changed since the cursor was made: there were {count}, now {len(self.names)}, in {self!r}. Restore them, "
                "or start anew."
            )
        for at in range(first, count, _FILES_AT_ONCE):
            stop = min(at + _FILES_AT_ONCE, count)
            yield self.take(epoch, np.arange(at, stop)), (stop, count)

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        names = [self.names[index] for index in indices.tolist()]
        rows = [self._row(name, data) for name, data in zip(names, self._read(names), strict=True)]
        return from_rows(rows, self.schema(), indices)

    def length(self) -> int:
        return len(self.names)

    def version(self) -> tuple[tuple[str, int, int], ...]:
        """Return path, size and time of every file."""
        if is_remote(self.root):
            return list_remote(self.root, self.suffixes)
        found = ((name, Path(self.root, name).stat()) for name in _list(Path(self.root), self.suffixes))
        return tuple(attrs.astuple(FileStamp(name, stat.st_size, stat.st_mtime_ns)) for name, stat in found)

    def _read(self, names: Sequence[str]) -> Iterator[bytes]:
        if is_remote(self.root):
            return iter(read_remote(self.root, names))
        return (Path(self.root, name).read_bytes() for name in names)

    def _row(self, name: str, data: bytes) -> Example:
        path = f"{self.root}/{name}" if is_remote(self.root) else str(Path(self.root, name))
        if not data:
            raise DataError(f"A file is empty: got 0 bytes, in {path!r}. Copy it again, or move it out of the folder.")
        row = {**self.parse(data, path), "path": name}
        kind = name.partition("/")[0]
        return {**row, "class": kind, "label": self.classes[kind]} if self.classes else row

    def __repr__(self) -> str:
        return show_call(super().__repr__(), (self.folder,))


def _list(root: Path, suffixes: tuple[str, ...]) -> tuple[str, ...]:
    if not root.is_dir():
        reason = "It is a file; name the folder that it lies in" if root.is_file() else "A relative path starts at the working folder"
        raise MissingFileError(f"There is no folder {str(root.absolute())!r}. {reason}.")
    below = (path for path in root.rglob("*") if path.suffix.lower() in suffixes and path.is_file())
    names = sorted(path.relative_to(root).as_posix() for path in below)
    shown = tuple(name for name in names if not any(part.startswith(".") for part in name.split("/")))
    if not shown:
        raise MissingFileError(f"No file in the folder {str(root)!r} or below it ends in {', '.join(suffixes)}. Check the path.")
    return shown


@frozen(repr=False)
class _ReadImages(_MediaFolder):
    suffixes = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
    kinds: ClassVar[dict[str, pa.DataType]] = {"image": pa.binary()}

    def parse(self, data: bytes, path: str) -> dict[str, Any]:
        return {"image": data}


@frozen(repr=False)
class _ReadAudio(_MediaFolder):
    suffixes = (".wav",)
    kinds: ClassVar[dict[str, pa.DataType]] = {"waveform": pa.list_(pa.float32()), "rate": pa.int64()}

    def parse(self, data: bytes, path: str) -> dict[str, Any]:
        try:
            with wave.open(pa.BufferReader(data), "rb") as opened:
                width, channels, stated = opened.getsampwidth(), opened.getnchannels(), opened.getnframes()
                rate, frames = opened.getframerate(), opened.readframes(stated)
        except (wave.Error, EOFError) as error:
            raise DataError(
                f"A file cannot be read as WAV: {str(error) or 'it ends in the middle of its head'}, in {path!r}. Convert it to samples of "
                "16 bits, as with ffmpeg -i old -c:a pcm_s16le new.wav."
            ) from error
        if len(frames) != stated * width * channels:
            raise DataError(
                f"A file ends early: got {len(frames):,} bytes of sound where its head says {stated * width * channels:,}, in {path!r}. "
                "Copy it again."
            )
        return {"waveform": _samples(frames, width).reshape(-1, channels).mean(axis=1, dtype=np.float64).astype(np.float32), "rate": rate}


def _samples(frames: bytes, width: int) -> NDArray[Any]:
    """Turn integers of `width` bytes into numbers from -1 to 1; those of one byte have no sign, as the format says."""
    if width == 1:
        return (np.frombuffer(frames, np.uint8) - 128.0) / 128.0
    wide = np.zeros((len(frames) // width, 4), np.uint8)
    wide[:, 4 - width :] = np.frombuffer(frames, np.uint8).reshape(-1, width)  # at the high end: the sign is then in its place
    return wide.view("<i4")[:, 0] / 2.0**31
