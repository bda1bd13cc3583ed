"""Remote files, named by an address such as `s3://bucket/train.csv`: found and opened through fsspec."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from glob import has_magic
from hashlib import blake2b
from typing import Any, NamedTuple

import pyarrow as pa

from mlxfp.core._optional import optional
from mlxfp.core.errors import ArgumentError, MissingExtraError, MissingFileError

# Bytes fetched ahead of those asked for. The defaults of fsspec's file systems, up to 50 MB, are wasted whenever reading starts or stops;
# smaller ones wait too often for an answer (some 50 ms from an object store).
_AHEAD = 1 << 22

# Attributes of a file that change with its content, the most reliable first; listings and requests for one file agree only on these.
_MARKS = ("ETag", "etag", "blob_id", "Last-Modified", "LastModified", "last_modified", "mtime", "created")


class FileStamp(NamedTuple):
    """A file as it was found; two stamps are equal if nothing suggests that the file has changed."""

    path: str
    size: int  # bytes on disk
    modified: int  # nanoseconds; of a remote file, a hash of its version


def is_remote(path: str) -> bool:
    """Return whether a path is an address with a scheme, as in `https://example.org/a.csv`."""
    return "://" in path


def is_shown(name: str) -> bool:
    """Return whether neither a file nor a folder that it is in starts with a dot."""
    return not any(part.startswith(".") for part in name.split("/"))


def find_remote(address: str, suffixes: tuple[str, ...]) -> tuple[FileStamp, ...]:
    """Return the files that an address names: as for local paths, where the file system has patterns and folders."""
    system, path = _split(address)
    found = [about for about in _look_up(system, lambda: _find(system, path, suffixes)) if about["type"] == "file"]
    if not found:
        raise MissingFileError(
            f"No file is found at {address!r}. Check the address; of a folder, only files in {', '.join(suffixes)} are read."
        )
    return tuple(sorted(_describe(system, about) for about in found))


def list_remote(address: str, suffixes: tuple[str, ...]) -> tuple[FileStamp, ...]:
    """Return the files in a folder and in the folders below it, with their names below the folder instead of addresses."""
    system, path = _split(address)
    below = f"{path.rstrip('/')}/"
    found = [] if _is_http(address) else _look_up(system, lambda: system.find(path, detail=True).values())
    named = {about["name"].removeprefix(below): about for about in found if about["name"].startswith(below)}
    shown = [name for name in named if is_shown(name) and name.lower().endswith(suffixes)]
    if not shown:
        raise MissingFileError(f"No file in the folder {address!r} or below it ends in {', '.join(suffixes)}. Check the address.")
    return tuple(sorted(_describe(system, named[name])._replace(path=name) for name in shown))


def read_remote(folder: str, names: Sequence[str]) -> list[bytes]:
    """Return the content of files below a folder, fetched together where the file system can."""
    system, path = _split(folder)
    ends = [None] * len(names)  # whole files; cat() would read a [ in a name as a pattern
    read: list[bytes] = system.cat_ranges([f"{path.rstrip('/')}/{name}" for name in names], ends, ends, on_error="raise")
    return read


def open_remote(address: str, *, exactly: bool = False) -> pa.NativeFile:
    """Open a file for reading from any byte on; only the parts that are read are fetched, where the file system can.

    `exactly` fetches nothing ahead: for a reader that jumps, and asks for large parts.
    """
    system, path = _split(address)
    ahead = {"cache_type": "none"} if exactly else {"block_size": _AHEAD}
    return pa.PythonFile(system.open(path, "rb", **ahead), mode="r")


def _split(address: str) -> tuple[Any, str]:
    filesystems = optional("fsspec.core", extra="remote", needed_by=f"Reading {address}")
    try:
        system, path = filesystems.url_to_fs(address)
    except ImportError as error:
        raise MissingExtraError(f"Reading {address} needs a package that is not installed: {error}.") from error
    except ValueError as error:
        raise ArgumentError(f"The address {address!r} cannot be read: {error}. Use a scheme that fsspec knows, as in 's3://'.") from error
    return system, path


def _is_http(address: str) -> bool:
    return address.startswith(("http://", "https://"))


def _look_up(system: Any, find: Callable[[], Iterable[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """Call a function that finds files, without cached listings; return nothing where the path does not exist."""
    system.invalidate_cache()
    try:
        return list(find())
    except FileNotFoundError:
        return []


def _find(system: Any, path: str, suffixes: tuple[str, ...]) -> Iterable[Mapping[str, Any]]:
    if has_magic(path) and not _is_http(path):
        return system.glob(path, detail=True).values()  # type: ignore[no-any-return]  # fsspec has no types
    about = system.info(path)
    if about["type"] != "directory":
        return [about]
    within = [(each["name"].rsplit("/", 1)[-1].lower(), each) for each in system.ls(path, detail=True)]
    return [each for name, each in within if not name.startswith(".") and name.endswith(suffixes)]


def _describe(system: Any, about: Mapping[str, Any]) -> FileStamp:
    name = about["name"]
    mark = next((about[mark] for mark in _MARKS if about.get(mark)), None)
    version = blake2b(str(system.ukey(name) if mark is None else mark).encode(), digest_size=7).digest()
    return FileStamp(system.unstrip_protocol(name), int(about["size"] or 0), int.from_bytes(version, "little"))
