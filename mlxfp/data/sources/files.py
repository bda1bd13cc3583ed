"""Base class and helpers of all sources that read files: file search, opening, reading in blocks, and resume positions.

Paths are stored as given. Files are searched when a dataset is read, not when it is built. The order of the files is part of the
dataset: paths in the given order, and the files of a folder or pattern sorted by name.
"""

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from glob import has_magic
from itertools import chain, takewhile
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar
from zipfile import BadZipFile, ZipFile

import pyarrow as pa
from attrs import field, frozen

from mlxfp.core.chunks import Schema
from mlxfp.core.sources import Position, Source, SourceTraits
from mlxfp.data.file_search import is_data, match_pattern, missing, readable, unreadable, walk_files
from mlxfp.data.manifests import is_written, listed_files, read_manifest
from mlxfp.data.sources.partitions import is_partition, partition_of, partition_types
from mlxfp.data.sources.remote_files import FileStamp, find_remote, is_remote, is_shown, open_remote
from mlxfp.support.checks import check_utf8
from mlxfp.support.errors import (
    ArgumentError,
    ArgumentTypeError,
    CursorError,
    DataError,
    MissingFileError,
    listed,
    suggest,
    without_secrets,
)
from mlxfp.support.file_formats import COMPRESSIONS

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

BLOCK = 1 << 19  # Number of bytes in the first block of a file. The block is small, so that the first rows arrive soon.
_GROWTH = 8  # The largest block is eight times the first block. Large blocks keep all threads of parsers busy.
LARGEST_RECORD = 1 << 28  # maximum size of a record in bytes; a larger record probably has an unclosed quote and would fill the memory


def as_paths(path: Any) -> tuple[str, ...]:
    """Return `path` as a tuple of strings. Raise an error for other types."""
    if hasattr(path, "column_names") or hasattr(path, "columns"):
        raise ArgumentTypeError(f"path must be a path, got a table: {type(path).__name__}. Write fp.from_table(table).")
    several = [path] if isinstance(path, str | os.PathLike) else path
    if not isinstance(several, Sequence) or isinstance(several, bytes):
        raise ArgumentTypeError(
            f"path must be a path, a pattern, a folder or a sequence of these, got {type(path).__name__}: {path!r:.60}."
        )
    for item in several:
        if not isinstance(item, str | os.PathLike) or not isinstance(os.fspath(item), str):
            raise ArgumentTypeError(f"Every path must be a string or a Path, got {type(item).__name__}: {item!r:.60}.")
    paths = tuple(os.fspath(item) for item in several)
    for name in paths:
        check_utf8(name, "file")
    if not paths or not all(paths):
        raise ArgumentError(f"path must name at least one file, got {path!r}.")
    return paths


def show_call(call: str, paths: tuple[str, ...]) -> str:
    """Return the text of a reader call with the paths as first argument, such as `read_csv('a.csv')`."""
    head, _, rest = call.partition("(")
    paths = tuple(map(without_secrets, paths))
    text = repr(paths[0]) if len(paths) == 1 else repr(list(paths))
    shown = text if len(text) <= 120 else f"{text[:90]}...{text[-27:]}"
    return f"{head}({shown}{'' if rest == ')' else ', '}{rest}"


def packing(path: str) -> str | None:
    """Return the compression of a file according to its suffix, or None. A compressed file can only be decompressed from the start."""
    within = ".zip/" in path.lower() and not is_remote(path) and archive_of(Path(path)) is not None
    name = path.partition("?")[0] if is_remote(path) else path
    return "zip" if within else COMPRESSIONS.get(Path(name).suffix.lower())


def archive_of(path: Path) -> Path | None:
    """Return the zip archive in a path such as `data.zip/train.csv`, or None."""
    return next((parent for parent in path.parents if parent.suffix.lower() == ".zip" and parent.is_file()), None)


def _members(archive: ZipFile) -> list[str]:
    """Return the names of the files in an archive. Hidden files and files added by the operating system are left out."""
    names = [info.filename for info in archive.infolist() if not info.is_dir()]
    return [name for name in names if is_shown(name) and not name.startswith("__MACOSX/")]


def find_files(paths: tuple[str, ...], suffixes: tuple[str, ...]) -> tuple[FileStamp, ...]:
    """Return the files that match the paths, patterns and folders.

    A folder stands for its files with one of the suffixes, also in partition subfolders such as `year=2024`.
    """
    stamps: list[FileStamp] = []
    for path in paths:
        if is_remote(path):
            stamps += find_remote(path, suffixes)
        else:
            with readable(Path(path).expanduser()):
                stamps += _find_local(Path(path).expanduser(), suffixes)
    return tuple(stamps)


def _find_local(path: Path, suffixes: tuple[str, ...]) -> Iterator[FileStamp]:
    named = path.parent if path.is_file() else Path(*takewhile(lambda part: path.is_dir() or not has_magic(part), path.parts))
    files = _expand(path, suffixes)
    manifest = read_manifest(files[0].parent) if path.is_dir() else None
    hashes = {} if manifest is None else {files[0].parent / file.name: file.hash for file in manifest.files}
    for file in files:
        yield look_up(file)._replace(partition=partition_of(file.relative_to(named).parts[:-1]), hash=hashes.get(file))


def _expand(path: Path, suffixes: tuple[str, ...]) -> list[Path]:
    if path.is_file():
        return [path]
    archive = archive_of(path) if any(suffix.endswith(".zip") for suffix in suffixes) else None
    if archive is not None:
        return _expand_within(archive, path.relative_to(archive).as_posix())
    if path.is_dir():
        written = listed_files(path, suffixes)
        if written is not None:
            return written
        below = chain.from_iterable(walk_files(folder) for folder in path.iterdir() if is_partition(folder.name) and folder.is_dir())
        entries = [entry for entry in chain(path.iterdir(), below) if is_shown(entry.relative_to(path).as_posix()) and not entry.is_dir()]
        matches = sorted(entry for entry in entries if entry.name.lower().endswith(suffixes) and is_data(entry))
        if not matches and (caches := sorted(filter(is_written, path.iterdir()))):
            if len(caches) == 1:
                return _expand(caches[0], suffixes)
            raise ArgumentError(
                f"A folder has several caches, probably of different versions of a pipeline: got {len(caches)} caches, in {path}. Give the "
                "path of one cache, or delete the old caches."
            )
        if not matches:
            wanted = ", ".join(suffixes)
            raise MissingFileError(
                f"No file in the folder {str(path)!r} ends in {wanted}, got {len(entries)} other files. Select files by a pattern."
            )
        return matches
    if not has_magic(str(path)):
        raise missing(path)
    matches = match_pattern(path)
    if not matches:
        raise MissingFileError(f"No file matches {str(path)!r}, searched from {Path.cwd()}. Check the pattern. ** matches any depth.")
    return matches


def _expand_within(archive: Path, name: str) -> list[Path]:
    with _open_zip(str(archive), archive) as opened:
        members = _members(opened)
    matches = [archive / member for member in sorted(members) if member == name or fnmatchcase(member, name)]
    if not matches:
        raise MissingFileError(
            f"No file in the archive {str(archive)!r} is named {name!r}.{suggest(name, members)} Files in the archive: {listed(members)}."
        )
    return matches


def look_up(path: Path) -> FileStamp:
    """Return path, size and modification time of a local file. For a file in an archive, return size and time of the archive."""
    check_utf8(path, "file")
    with readable(path):
        status = (archive_of(path) or path).stat()
    return FileStamp(str(path), status.st_size, status.st_mtime_ns)


def check_unchanged(file: FileStamp) -> None:
    """Raise `DataError` if a local file was replaced, overwritten or truncated after reading began."""
    if is_remote(file.path):
        return
    with suppress(FileNotFoundError):  # A removed file is no error: its rows were read through the open file handle.
        now = look_up(Path(file.path))
        if now.version != file.version:
            raise DataError(
                f"A file has changed during reading: it had {file.size:,} bytes, now {now.size:,}, in {file.path}. Rows of old and new "
                "content may be mixed. Let the other program finish, then read again."
            )


@frozen(repr=False)
class FileSource(Source):
    """Base class of sources that read the files of one format in order. A subclass creates resume positions with `position_in`."""

    paths: tuple[str, ...] = field(converter=as_paths, repr=False)
    kept: tuple[str, ...] | None = field(default=None, kw_only=True, repr=False)  # columns to read; None reads all columns
    # Files found by an earlier search. With None, the method `files` searches for files.
    files_before: tuple[FileStamp, ...] | None = field(default=None, kw_only=True, repr=False, eq=False)
    suffixes: ClassVar[tuple[str, ...]]  # suffixes of the files that are read if a path is a folder

    def files(self) -> tuple[FileStamp, ...]:
        return find_files(self.paths, self.suffixes) if self.files_before is None else self.files_before

    def select(self, schema: Schema) -> Schema:
        """Return the schema restricted to the columns to read."""
        return schema if self.kept is None else pa.schema([schema.field(name) for name in self.kept])

    @property
    def traits(self) -> SourceTraits:
        return SourceTraits(file_of=self.file_of, contents=self.contents, notes=self.notes)

    def contents(self) -> str | None:
        """Return the number and the total size of the files as text. Return None for remote files."""
        if any(map(is_remote, self.paths)):
            return None
        return count_files(self.files())

    def file_of(self, position: Position) -> str | None:
        """Return the path of the file at a position. Return None for a source with only one file."""
        files = self.files()
        number, _, _ = parse_position(files, position)
        return without_secrets(files[number].path) if len(files) > 1 and number < len(files) else None

    def version(self) -> tuple[tuple[str, int, int], ...]:
        return tuple(file.version for file in self.files())

    def notes(self) -> tuple[str, ...]:
        """Return a note for `explain`: the columns from folder names such as `year=2026`, or a folder name that adds no column."""
        with suppress(MissingFileError):
            files = self.files()
            columns = partition_types(tuple(file.partition for file in files))
            if columns:
                return (f"columns from folder names: {', '.join(name for name, _ in columns)}",)
            for folder in chain.from_iterable(Path(file.path).parts[:-1] for file in files):
                if is_partition(folder):
                    return (f"the folder {folder!r} is part of the path and makes no column; give its parent folder as path",)
        return ()

    def __repr__(self) -> str:
        return show_call(super().__repr__(), self.paths)


def count_files(files: Sequence[FileStamp]) -> str:
    """Return the number and the total size of files as text."""
    return f"{len(files):,} {'file' if len(files) == 1 else 'files'} with {sum(file.size for file in files):,} bytes"


def position_in(files: tuple[FileStamp, ...], number: int, at: int, rest: int) -> Position:
    """Return a resume position in the file with index `number`. The file format decides what the numbers `at` and `rest` mean.

    The position also holds the file size and the number of files, so that `parse_position` can detect changed files.
    """
    return number, at, rest, files[number].size if number < len(files) else 0, len(files)


def parse_position(files: tuple[FileStamp, ...], position: Position) -> tuple[int, int, int]:
    """Split a position made by `position_in`. Return the file index and two numbers, for example byte offset and line number.

    The two numbers depend on the file format. Raises `CursorError` if the files have changed since the position was made.
    """
    if position is None:
        return 0, 0, 0
    match position:
        case (int(number), int(at), int(rest), int(size), int(count)) if min(number, at, rest) >= 0 and number <= count:
            pass
        case _:
            raise CursorError(f"The cursor has no position in files: {position!r:.80}. Use the bytes returned by Cursor.to_bytes().")
    if count != len(files):
        raise CursorError(
            f"The files have changed since the cursor was made: there were {count}, now {len(files)}. "
            "Restore the files, or start without a cursor."
        )
    if number < count and files[number].size != size:
        now = files[number]
        raise CursorError(
            f"A file has changed since the cursor was made: it had {size:,} bytes, now {now.size:,}: {now.path}. "
            "Restore the file, or start without a cursor."
        )
    return number, at, rest


def open_bytes(path: str) -> Any:
    """Open a local or remote file for reading. Compressed files are decompressed during reading."""
    if not is_remote(path):
        with readable(path):
            return _open_member(path) if packing(path) == "zip" else pa.input_stream(path, compression=packing(path))
    if packing(path) == "zip":
        return _open_member(path)
    opened = open_remote(path)
    return opened if packing(path) is None else pa.input_stream(opened, compression=packing(path))


def _open_zip(path: str, opened: Any) -> ZipFile:
    try:
        return ZipFile(opened)
    except BadZipFile as error:
        raise _damaged(error, path) from error


def _open_member(path: str) -> Any:
    """Open a file in a zip archive. `path` is `data.zip/train.csv`, or `data.zip` for an archive with a single file."""
    archive = None if is_remote(path) else archive_of(Path(path))
    opened = _open_zip(path, open_remote(path, jumps=True) if is_remote(path) else archive or path)
    members = _members(opened) if archive is None else [Path(path).relative_to(archive).as_posix()]
    if not members:
        raise DataError(f"An archive has no files: got 0 files, in {path}. Make the archive again, for example: zip NEW.zip FILE")
    if len(members) != 1:
        raise ArgumentError(
            f"A path to an archive with several files must name one file, got {listed(members)} in {path}. "
            f"Write {f'{path}/{members[0]}'!r}."
        )
    try:
        return opened.open(members[0])
    except (NotImplementedError, RuntimeError) as error:  # zipfile reports an unsupported compression or a missing password
        secret = opened.getinfo(members[0]).flag_bits & 1
        problem = "is encrypted" if secret else "uses a compression that Python lacks"
        raise DataError(
            f"A file in an archive {problem}: {error}, in {path}. Read the unpacked file instead. To unpack the archive: "
            f"7z x {quote(str(archive or path))}"
        ) from error
    except BadZipFile as error:
        raise _damaged(error, path) from error


def _damaged(error: Exception, path: str) -> DataError:
    return DataError(f"A compressed file is damaged: {error}, in {path}. Compress or download the file again.")


def blocks(path: str, offset: int, cut: Callable[[bytes], int], size: int) -> Iterator[tuple[bytes, int | None]]:
    """Read a file from byte `offset` on, and yield pairs: a block of whole records, and the offset after the block.

    The offset after the last block is None. The last block may be empty. `cut(data)` returns the number of bytes of the whole records at
    the start of `data`.

    The first block of a file has at most `size` bytes. The limit grows with the byte offset, up to eight times `size`. For a longer record,
    the limit is doubled until the record fits. The limit depends only on the offset, so a resumed run yields the same blocks.

    Offsets count uncompressed bytes. An uncompressed file is read from `offset`. A compressed file, recognized by its suffix, is
    decompressed from the start.
    """
    with open_bytes(path) as stream:
        _enter(stream, offset, path)
        # For a local file, reading the incomplete last record again is faster than copying the bytes of the record.
        rereads = packing(path) is None and not is_remote(path)
        rest, wanted = b"", _grown(size, offset)
        while len(rest := _fill(stream, rest, wanted, path)) >= wanted:
            end = cut(rest[:wanted])
            if end:
                offset += end
                yield rest[:end], offset
                rest, wanted = b"" if rereads else rest[end:], _grown(size, offset)
                if rereads:
                    stream.seek(offset)
            elif wanted >= LARGEST_RECORD:
                raise DataError(
                    f"A record is too long: got {wanted:,} bytes without a record end, after byte {offset:,} of {path}. Add the missing "
                    "newline. In CSV, close the open quote, or give quote=None if quotes are plain text."
                )
            else:
                wanted *= 2
        yield rest, None


def _grown(size: int, offset: int) -> int:
    """Return the largest number of bytes for the block at `offset`: `size` at the start of a file, and up to eight times `size` later."""
    return size * max(1, min(offset // size, _GROWTH))


def _fill(stream: Any, start: bytes, size: int, path: str) -> bytes:
    """Append bytes of a stream to `start` until the result has `size` bytes or the file ends. Return the result."""
    while len(start) < size and (data := read_bytes(stream, size - len(start), path)):
        start += data
    return start


def _enter(stream: Any, offset: int, path: str) -> None:
    """Move to an offset in the decompressed content of a file."""
    if stream.seekable():
        with suppress(ValueError):  # a remote file of unknown size can be read in order only
            stream.seek(offset)
            return
    while offset and (dropped := read_bytes(stream, min(offset, BLOCK), path)):
        offset -= len(dropped)


def read_bytes(stream: Any, size: int, path: str) -> bytes:
    """Read at most `size` bytes. Raise `DataError` for a damaged compressed file."""
    try:
        data: bytes = stream.read(size)
    except (OSError, BadZipFile, zlib.error, EOFError) as error:
        if packing(path) is None:
            if isinstance(error, OSError) and error.errno is not None and not is_remote(path):
                raise unreadable(error, path) from error
            raise
        raise _damaged(error, path) from error
    return data
