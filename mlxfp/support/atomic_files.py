"""Atomic file writes: a file gets its final name after all content is on the disk."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

PARTIAL = ".partial"  # part of the names of unfinished files; leftover files belong to killed processes


@contextmanager
def written_whole(path: Path, *, suffix: str | None = None, within: Path | None = None) -> Iterator[Path]:
    """Yield the path of a temporary file, then replace the file at `path` with the temporary file.

    The temporary file is in the folder of `path`, or in `within`, which must be on the same disk. The file and its folder are synced.
    After a crash or a power cut, `path` is either the old file or the complete new file. If the block raises, the temporary file is
    removed and `path` does not change. The folder must exist. The temporary name ends in `suffix` (default: the suffix of `path`),
    for writers that choose a format by suffix.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with written_whole(Path(folder, "a.txt")) as file:
    ...         _ = file.write_text("all of it")
    ...     [path.name for path in Path(folder).iterdir()]
    ['a.txt']
    """
    temporary = (within or path.parent) / f".{path.name}.{token_hex(8)}{PARTIAL}{path.suffix if suffix is None else suffix}"
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)  # the sync of the folder writes the new file name to the disk
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes, *, within: Path | None = None) -> None:
    """Write bytes to a file atomically, with `written_whole`."""
    with written_whole(path, within=within) as file:
        file.write_bytes(content)


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # Windows cannot open folders
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
