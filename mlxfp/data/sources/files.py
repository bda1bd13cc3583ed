"""Finding files, opening them, and reading them in blocks.

Paths are kept as they were written and looked up when a dataset is read, never when it is built. The order of the files is part of what a
dataset is: paths come in the order given, the files of a folder or a pattern sorted by name.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from glob import glob, has_magic
from itertools import chain, starmap
from pathlib import Path
from typing import Any

import pyarrow as pa
from attrs import frozen

from mlxfp.core.errors import ArgumentError, ArgumentTypeError, DataError, MissingFileError
from mlxfp.data.sources.remote_files import File, find_remote, is_remote, open_remote

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

BLOCK = 1 << 19  # bytes parsed at a time: CSV, JSON and text are fastest from 256 KB to 1 MB (measured: 64 KB to 4 MB)
LARGEST_RECORD = 1 << 28  # bytes; a longer record is probably a quote that is never closed, and must not fill the memory

_PACKINGS = {".gz": "gzip", ".zst": "zstd"}


@frozen
class FileStamp:
    """A file as it was found; two stamps are equal if nothing suggests that the file has changed."""

    path: str
    size: int  # bytes on disk
    modified: int  # nanoseconds; of a remote file, a hash of its version


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
    """Return how a file is compressed, by its suffix; to read from the middle of it, everything before must be decompressed."""
    return _PACKINGS.get(Path(path).suffix.lower())


def find_files(paths: tuple[str, ...], suffixes: tuple[str, ...]) -> tuple[FileStamp, ...]:
    """Return the files that paths, patterns and folders name.

    `~` is the home folder. In a pattern, `**` matches folders at any depth. A folder names the files directly in it that have one of the
    suffixes and do not start with a dot. A path with a scheme, as in `s3://bucket/train.csv`, is looked up there (extra `remote`). Raises
    `MissingFileError` for a path that matches no file.
    """
    found = (find_remote(path, suffixes) if is_remote(path) else map(look_up, _expand(Path(path).expanduser(), suffixes)) for path in paths)
    return tuple(starmap(FileStamp, chain.from_iterable(found)))


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
        raise MissingFileError(f"No file matches {str(path)!r}, searched from {Path.cwd()}. Check the pattern; ** matches any depth.")
    return found


def look_up(path: Path) -> File:
    """Return path, size and time of a local file."""
    found = path.stat()
    return str(path), found.st_size, found.st_mtime_ns


def open_bytes(path: str) -> pa.NativeFile:
    """Open a local or remote file for reading, decompressed."""
    if not is_remote(path):
        return pa.input_stream(path, compression=packing(path))
    opened = open_remote(path)
    return opened if packing(path) is None else pa.input_stream(opened, compression=packing(path))


def blocks(path: str, offset: int, cut: Callable[[bytes], int], size: int) -> Iterator[tuple[bytes, int | None]]:
    """Yield the file from `offset` on in blocks of whole records, each with the offset after it; None after the last, which may be empty.

    `cut` returns how many of the bytes read are whole records. A block holds the whole records in the `size` bytes from its offset on; if
    there are none, those in twice as many bytes, and so on. So the end of a block depends only on where it begins. Offsets count
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
                    "missing newline, or in CSV for a quote that is never closed (quote=None reads quotes as text)."
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
    """Move to a byte of the decompressed file."""
    if stream.seekable():
        stream.seek(offset)
        return
    while offset and (dropped := read_bytes(stream, min(offset, BLOCK), path)):
        offset -= len(dropped)


def read_bytes(stream: Any, size: int, path: str) -> bytes:
    """Read at most `size` bytes; raise `DataError` for a compressed file that is damaged."""
    try:
        data: bytes = stream.read(size)
    except OSError as error:
        if packing(path) is None:
            raise
        raise DataError(f"A compressed file is damaged: {error}, in {path}. Compress or download it again.") from error
    return data
