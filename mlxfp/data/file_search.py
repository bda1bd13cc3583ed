"""Search for local files by name patterns. Errors for missing files."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from glob import glob, has_magic
from heapq import heappop, heappush
from io import FileIO
from itertools import takewhile
from pathlib import Path
from shlex import quote
from stat import S_ISFIFO

from mlxfp.support.errors import DataError, MissingFileError, MlxfpError, suggest_path


def _check_folders(pattern: Path) -> None:
    """Raise `DataError` if a folder with possible matches of `pattern` cannot be listed. `glob` would skip the folder without an error."""
    for parent in pattern.parents:
        for folder in map(Path, glob(str(parent)) if has_magic(str(parent)) else ()):  # noqa: PTH207  # Path.glob rejects absolute patterns
            if folder.is_dir():
                with readable(folder), os.scandir(folder):
                    pass


def is_data(path: Path) -> bool:
    """Return True if the path is a file. Raise `MissingFileError` for a link whose target does not exist."""
    if path.is_file():
        return True
    if path.is_symlink():
        _check_target(path)
    return False


def match_pattern(pattern: Path) -> list[Path]:
    """Return the files that match a pattern, in order. `**` matches folders at any depth.

    `**` also follows links to folders. Each folder is read only once, and links to a parent of the searched folder are ignored.
    """
    head = Path(*takewhile(lambda part: part != "**", pattern.parts))
    rest = pattern.parts[len(head.parts) :]
    if not rest:
        _check_folders(head)
        return sorted(match for match in map(Path, glob(str(pattern))) if is_data(match))  # noqa: PTH207  # Path.glob rejects absolute patterns
    roots = [Path(root) for root in sorted(glob(str(head)))] if head.parts else [Path()]  # noqa: PTH207
    hidden = any(part.startswith(".") for part in rest)
    matches = {
        file for root in roots if root.is_dir() for file in walk_files(root, hidden=hidden) if _fits(file.relative_to(root).parts, rest)
    }
    return sorted(filter(is_data, matches))


@contextmanager
def readable(path: str | Path) -> Iterator[None]:
    """Raise an error with path and remedy in place of each `OSError` in the `with` block. The block reads the local file `path`."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise unreadable(error, error.filename or path) from error


def unreadable(error: OSError, path: str | Path) -> MlxfpError:
    """Return the error for a local path that the operating system does not read."""
    path, problem = Path(os.path.abspath(path)), os.strerror(error.errno or 0)  # noqa: PTH100  # Path.resolve would follow links
    if isinstance(error, PermissionError):
        closed = next((folder for folder in reversed(path.parents) if not os.access(folder, os.X_OK)), path)
        return DataError(
            f"There is no permission to read a file or folder: got {problem!r}, for {str(path)!r}. Ask the owner to type: chmod "
            f"{'a+rx' if closed.is_dir() else 'a+r'} {quote(str(closed))}"
        )
    if isinstance(error, FileNotFoundError) and not os.path.lexists(path):
        return missing(path)
    remedy = "ulimit -n 4096" if error.errno == errno.EMFILE else f"ls -l {quote(str(path.parent)):.200}"
    return DataError(f"The operating system cannot read a file: got {problem!r}, for {str(path)[:300]!r}. Find the cause: {remedy}")


def open_plain(path: str) -> FileIO:
    """Open a local file for unbuffered reading."""
    with readable(path):
        return FileIO(path)


def missing(path: Path) -> MlxfpError:
    """Return the error for a path that is neither a file nor a folder."""
    if path.is_symlink():
        _check_target(path)
    if path.exists():
        kind = "pipe" if S_ISFIFO(path.stat().st_mode) else "device"
        return DataError(
            f"A path is a {kind} instead of a file, in {str(path)!r}. A dataset reads its files several times. Save the data first: "
            f"cat {quote(str(path))} > FILE."
        )
    return MissingFileError(
        f"There is no file or folder {str(path.absolute())!r}.{suggest_path(path)} Check the path. A relative path starts at the "
        "working folder."
    )


def _check_target(link: Path) -> None:
    try:
        link.stat()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise
        problem = "leads to itself" if error.errno == errno.ELOOP else "has no target"
        raise MissingFileError(
            f"A link {problem}: {str(link)!r} leads to {str(link.readlink())!r}. Restore the target, or remove the link: "
            f"rm {quote(str(link))}."
        ) from None


def walk_files(root: Path, *, hidden: bool = False) -> Iterator[Path]:
    """Yield the entries in a folder at any depth, except folders. Links to folders are read last."""
    start = Path(os.path.realpath(root))
    read = set[str]()  # real paths of folders
    folders, links = [str(root)], list[str]()
    while folders or links:
        folder = folders.pop() if folders else heappop(links)
        real = os.path.realpath(folder)
        if real in read:
            continue
        read.add(real)
        with readable(folder), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(".") and not hidden:
                    continue
                if not entry.is_dir():
                    yield Path(entry.path)
                elif not entry.is_symlink():
                    folders.append(entry.path)
                elif not start.is_relative_to(os.path.realpath(entry.path)):
                    heappush(links, entry.path)


def _fits(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return True if a path matches a pattern. Path and pattern are lists of names. `*` and `**` do not match hidden names."""
    if not pattern or not names:
        return not names and all(part == "**" for part in pattern)
    shown = not names[0].startswith(".")
    if pattern[0] == "**":
        return _fits(names, pattern[1:]) or (shown and _fits(names[1:], pattern))
    return (shown or pattern[0].startswith(".")) and fnmatch(names[0], pattern[0]) and _fits(names[1:], pattern[1:])
