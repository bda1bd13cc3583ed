"""Finding files and reading them in blocks.

Paths are kept as they were written and looked up when a dataset is read, never when it is built. The order of the files is part of what a
dataset is: paths come in the order given, what a folder or a pattern stands for comes sorted by name.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from glob import glob, has_magic
from pathlib import Path
from typing import Any

import pyarrow as pa
from attrs import frozen

from mlxfp.core.chunks import HIDDEN
from mlxfp.core.datasets import Position
from mlxfp.core.errors import ArgumentError, ArgumentTypeError, CursorError, DataError, MissingFileError, SchemaError
from mlxfp.data.sources.remote_files import find_remote, is_remote, open_remote

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

BLOCK = 1 << 19  # bytes parsed at a time: CSV, JSON and text are fastest from 256 KB to 1 MB (measured: 64 KB to 4 MB)
LARGEST_RECORD = 1 << 28  # bytes. Beyond it a quote that is never closed is likelier than a record, and memory should not fill to find out

_PACKINGS = {".gz": "gzip", ".zst": "zstd"}


@frozen
class FileStamp:
    """A file as it was found; two stamps are equal if nothing suggests that the file has changed."""

    path: str
    size: int  # bytes on disk
    modified: int  # nanoseconds; of a file elsewhere, a number that stands for what is said of its version


def as_paths(path: Any) -> tuple[str, ...]:
    """Return `Paths` as a tuple of strings; raise for anything else."""
    several = [path] if isinstance(path, str | os.PathLike) else path
    if not isinstance(several, Sequence) or isinstance(several, bytes):
        raise ArgumentTypeError(
            f"path must be a path, a pattern, a folder or a sequence of these, got {type(path).__name__}: {path!r:.60}."
        )
    for item in several:
        if not isinstance(item, str | os.PathLike) or not isinstance(os.fspath(item), str):
            raise ArgumentTypeError(f"Every path must be a string or a Path, got {type(item).__name__}: {item!r:.60}.")
    paths = tuple(os.fspath(item) for item in several)
    if not paths or not all(paths):
        raise ArgumentError(f"path must name at least one file, got {path!r}.")
    return paths


def show_call(call: str, paths: tuple[str, ...]) -> str:
    """Put the paths in front of the arguments of a call: `read_csv('a.csv')`."""
    head, _, rest = call.partition("(")
    text = repr(paths[0]) if len(paths) == 1 else repr(list(paths))
    shown = text if len(text) <= 120 else f"{text[:90]}...{text[-27:]}"
    return f"{head}({shown}{'' if rest == ')' else ', '}{rest}"


def packed(*suffixes: str) -> tuple[str, ...]:
    """Return the suffixes, alone and followed by those of compressed files."""
    return tuple(suffix + last for suffix in suffixes for last in ("", *_PACKINGS))


def packing(path: str) -> str | None:
    """Return how a file is compressed, by its suffix; to read from the middle of one, all that stands before is decompressed."""
    return _PACKINGS.get(Path(path).suffix.lower())


def find_files(paths: tuple[str, ...], suffixes: tuple[str, ...]) -> tuple[FileStamp, ...]:
    """Return the files that paths, patterns and folders stand for.

    `~` is the home folder. In a pattern, `**` stands for folders at any depth. A folder stands for the files directly in it that have one
    of the suffixes and no dot in front. What has a scheme, as in `s3://bucket/train.csv`, is looked up there (extra `remote`). Raises
    `MissingFileError` for a path that stands for nothing.
    """
    return tuple(file for path in paths for file in _find(path, suffixes))


def _find(path: str, suffixes: tuple[str, ...]) -> list[FileStamp]:
    if is_remote(path):
        return [FileStamp(*file) for file in find_remote(path, suffixes)]
    return [_stamp(file) for file in _expand(Path(path).expanduser(), suffixes)]


def _expand(path: Path, suffixes: tuple[str, ...]) -> list[Path]:
    if path.is_file():
        return [path]
    if path.is_dir():
        entries = sorted(entry for entry in path.iterdir() if entry.is_file() and not entry.name.startswith("."))
        found = [entry for entry in entries if entry.name.lower().endswith(suffixes)]
        if not found:
            wanted = ", ".join(suffixes)
            raise MissingFileError(
                f"No file in the folder {str(path)!r} ends in {wanted}; it has {len(entries)} others. Name them by a pattern."
            )
        return found
    if not has_magic(str(path)):
        near = get_close_matches(path.name, [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else [], n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise MissingFileError(
            f"There is no file or folder {str(path.absolute())!r}.{hint} Check the path; a relative one starts at the working folder."
        )
    found = sorted(match for match in map(Path, glob(str(path), recursive=True)) if match.is_file())  # noqa: PTH207  # Path.glob refuses /
    if not found:
        raise MissingFileError(f"No file matches {str(path)!r}, searched from {Path.cwd()}. Check the pattern; ** stands for any depth.")
    return found


def _stamp(path: Path) -> FileStamp:
    found = path.stat()
    return FileStamp(str(path), found.st_size, found.st_mtime_ns)


def open_bytes(path: str) -> pa.NativeFile:
    """Open a file for reading, decompressed."""
    if not is_remote(path):
        return pa.input_stream(path, compression=packing(path))
    opened = open_remote(path)
    return opened if packing(path) is None else pa.input_stream(opened, compression=packing(path))


def blocks(path: str, offset: int, cut: Callable[[bytes], int], size: int) -> Iterator[tuple[bytes, int | None]]:
    """Yield the file from `offset` on in blocks of whole records, each with the offset after it; None after the last, which may be empty.

    `cut` says how many bytes of what was read are whole records. A block is what is whole in the `size` bytes from its offset on; only if
    that is nothing, in twice as many, and so on: so where blocks end depends on where they begin and on nothing before. Offsets count
    uncompressed bytes: a plain file is entered at `offset`, a compressed one (by its suffix) is decompressed from the start.
    """
    with open_bytes(path) as stream:
        _enter(stream, offset, path)
        rest, wanted = b"", size
        while len(rest := _fill(stream, rest, wanted, path)) >= wanted:
            end = cut(rest[:wanted])
            if end:
                offset += end
                yield rest[:end], offset
                rest, wanted = rest[end:], size
            elif wanted >= LARGEST_RECORD:
                raise DataError(
                    f"A record does not end: got {wanted:,} bytes without an end, from byte {offset:,} of {path} on. Look there for a "
                    "newline that is missing, or in CSV for a quote that is never closed (quote=None reads quotes as text)."
                )
            else:
                wanted *= 2
        yield rest, None


def _fill(stream: Any, start: bytes, size: int, path: str) -> bytes:
    """Read on until there are `size` bytes, or the file ends."""
    while len(start) < size and (data := read_bytes(stream, size - len(start), path)):
        start += data
    return start


def _enter(stream: Any, offset: int, path: str) -> None:
    if stream.seekable():
        stream.seek(offset)
        return
    while offset and (dropped := read_bytes(stream, min(offset, BLOCK), path)):
        offset -= len(dropped)


def read_bytes(stream: Any, size: int, path: str) -> bytes:
    """Read so many bytes at most; raise `DataError` for a compressed file that is damaged."""
    try:
        data: bytes = stream.read(size)
    except OSError as error:
        if packing(path) is None:
            raise
        raise DataError(f"A compressed file is damaged: {error}, in {path}. Compress or download it again.") from error
    return data


def place(files: tuple[FileStamp, ...], number: int, at: int, rest: int) -> Position:
    """Make the position `at` in file `number`, with what shows whether the files are still the same when it is used."""
    return number, at, rest, files[number].size if number < len(files) else 0, len(files)


def find_place(files: tuple[FileStamp, ...], position: Position) -> tuple[int, int, int]:
    """Return (number, at, rest) of a position; raise `CursorError` if the files have changed since it was made."""
    if position is None:
        return 0, 0, 0
    match position:
        case (int(number), int(at), int(rest), int(size), int(count)) if min(number, at, rest) >= 0 and number <= count:
            pass
        case _:
            raise CursorError(f"The cursor has no position in files: {position!r:.80}. Use what Cursor.to_bytes() returned.")
    if count != len(files):
        raise CursorError(
            f"The files have changed since the cursor was made: there were {count}, now {len(files)}. Restore them, or start anew."
        )
    if number < count and files[number].size != size:
        now = files[number]
        raise CursorError(
            f"A file has changed since the cursor was made: it had {size:,} bytes, now {now.size:,}: {now.path}. Restore it, or start anew."
        )
    return number, at, rest


def file_at(files: tuple[FileStamp, ...], position: Position) -> str | None:
    """Name the file, of several, that a position is in; None at the end of the last one."""
    number, _, _ = find_place(files, position)
    return files[number].path if len(files) > 1 and number < len(files) else None


def check_names(names: Sequence[str], path: str) -> None:
    """Raise `SchemaError` if a file has no columns, two of one name, or one with a reserved name."""
    if not names:
        raise SchemaError(f"A table has no columns, in {path}. Leave it out.")
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise SchemaError(
            f"Several columns have one name: got {', '.join(map(repr, doubled))} more than once, in {path}. Rename them in the file."
        )
    reserved = sorted(set(names) & set(HIDDEN))
    if reserved:
        raise SchemaError(f"A column has a reserved name: got {reserved[0]!r}, in {path}. Rename it in the file.")


def check_same_names(names: Sequence[str], path: str, expected: Sequence[str], first: str) -> None:
    """Raise `SchemaError` unless a file has the columns that the first file has, in any order."""
    if sorted(names) == sorted(expected):
        return
    missing = ", ".join(repr(name) for name in expected if name not in names) or "nothing"
    extra = ", ".join(repr(name) for name in names if name not in expected) or "nothing"
    raise SchemaError(f"Two files have different columns: {path} lacks {missing} and adds {extra}, compared with {first}. Read them apart.")
