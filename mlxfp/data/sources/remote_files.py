"""Remote files, named by an address such as `s3://bucket/train.csv`: found and opened through fsspec."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from glob import has_magic
from hashlib import blake2b
from io import SEEK_CUR, SEEK_END, SEEK_SET, RawIOBase
from itertools import takewhile
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from attrs import frozen

from mlxfp.data.sources.partitions import Partition, is_partition, partition_of
from mlxfp.support.errors import ArgumentError, DataError, MissingExtraError, MissingFileError
from mlxfp.support.optional import optional

# Bytes fetched ahead of those asked for. The defaults of fsspec's file systems, up to 50 MB, are wasted whenever reading starts or stops;
# smaller ones wait too often for an answer (some 50 ms from an object store).
_AHEAD = 1 << 22

_ATTEMPTS, _WAIT = 5, 0.1  # requests, and seconds before the second one; each wait is four times as long as the one before
_SILENCE = 60.0  # seconds without a byte of an answer after which a request over HTTP has failed
_PASSING = (408, 429)  # of HTTP: a timeout, too many requests; besides 500 and more, where the server fails
_FOR_GOOD = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, ValueError, TypeError, AttributeError, MemoryError)
A = TypeVar("A")

# Attributes of a file that change with its content, the most reliable first; listings and requests for one file agree only on these.
_MARKS = ("ETag", "etag", "blob_id", "Last-Modified", "LastModified", "last_modified", "mtime", "created")


class FileStamp(NamedTuple):
    """A file as it was found; two stamps are equal if nothing suggests that the file has changed."""

    path: str
    size: int  # bytes on disk
    modified: int  # nanoseconds; of a remote file, a hash of its version
    partition: Partition = ()  # what the names of the folders state that were found on the way to it

    @property
    def version(self) -> tuple[str, int, int]:
        """What caches are keyed by."""
        return self.path, self.size, self.modified


def is_remote(path: str) -> bool:
    """Return whether a path is an address with a scheme, as in `https://example.org/a.csv`."""
    return "://" in path


def is_shown(name: str) -> bool:
    """Return whether neither a file nor a folder that it is in starts with a dot."""
    return not any(part.startswith(".") for part in name.split("/"))


def find_remote(address: str, suffixes: tuple[str, ...]) -> tuple[FileStamp, ...]:
    """Return the files that an address names: as for local paths, where the file system has patterns and folders."""
    system, path = _split(address)
    found = [about for about in _look_up(system, address, lambda: _find(system, path, suffixes)) if about["type"] == "file"]
    if not found:
        raise MissingFileError(
            f"No file is found at {address!r}. Check the address; of a folder, only files in {', '.join(suffixes)} are read."
        )
    below = f"{_named_folder(path)}/"
    folders = (about["name"].removeprefix(below).split("/")[:-1] if about["name"].startswith(below) else () for about in found)
    stamps = (_describe(system, about)._replace(partition=partition_of(names)) for about, names in zip(found, folders, strict=True))
    return tuple(sorted(stamps))


def list_remote(address: str, suffixes: tuple[str, ...]) -> tuple[FileStamp, ...]:
    """Return the files in a folder and in the folders below it, with their names below the folder instead of addresses."""
    system, path = _split(address)
    below = f"{path.rstrip('/')}/"
    found = [] if _is_http(address) else _look_up(system, address, lambda: system.find(path, detail=True).values())
    named = {about["name"].removeprefix(below): about for about in found if about["name"].startswith(below)}
    shown = [name for name in named if is_shown(name) and name.lower().endswith(suffixes)]
    if not shown:
        raise MissingFileError(f"No file in the folder {address!r} or below it ends in {', '.join(suffixes)}. Check the address.")
    return tuple(sorted(_describe(system, named[name])._replace(path=name) for name in shown))


def read_remote(folder: str, names: Sequence[str]) -> list[bytes]:
    """Return the content of files below a folder, fetched together where the file system can."""
    system, path = _split(folder)
    ends = [None] * len(names)  # whole files; cat() would read a [ in a name as a pattern
    paths = [f"{path.rstrip('/')}/{name}" for name in names]
    read: list[bytes] = _retried(lambda: system.cat_ranges(paths, ends, ends, on_error="raise"), folder)
    return read


def open_remote(address: str, *, exactly: bool = False) -> pa.NativeFile:
    """Open a file for reading from any byte on; only the parts that are read are fetched, where the file system can.

    `exactly` fetches nothing ahead: for a reader that jumps, and asks for large parts.
    """
    system, path = _split(address)
    ahead = {"cache_type": "none"} if exactly else {"block_size": _AHEAD}
    opens = partial(system.open, path, "rb", **ahead)
    opened = _retried(opens, address)
    sized = getattr(opened, "size", None) is not None  # a server need not say how much there is
    return pa.PythonFile(_Retried(opened, opens, address) if sized else _Unsized(opened, address), mode="r")


class _Retried(RawIOBase):
    """A remote file that is opened again where reading fails, or gives less than there is: connections end at any byte."""

    def __init__(self, file: Any, opens: Callable[[], Any], address: str) -> None:
        """Start at the first byte of an open file, which `opens` opens again."""
        self.file, self.opens, self.address = file, opens, address
        self.at, self.size = 0, int(file.size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = SEEK_SET, /) -> int:
        self.at = max(0, offset + {SEEK_SET: 0, SEEK_CUR: self.at, SEEK_END: self.size}[whence])
        return self.at

    def read(self, size: int = -1, /) -> bytes:
        left = max(0, self.size - self.at)
        wanted = left if size < 0 else min(size, left)
        data = _retried(lambda: self._read(wanted), f"byte {self.at:,} of {self.size:,} of {self.address}")
        self.at += wanted
        return data

    def close(self) -> None:
        if not self.closed:
            self.file.close()
        super().close()

    def _read(self, size: int) -> bytes:
        if self.file.closed:
            self.file = self.opens()
        try:
            self.file.seek(self.at)
            data: bytes = self.file.read(size)
        except Exception:
            self.file.close()  # the next attempt opens the file again
            raise
        if len(data) < size:
            self.file.close()
            raise ConnectionError(f"the answer ends after {len(data):,} of {size:,} bytes")
        return data


@frozen
class _Unsized:
    """A remote file of unknown size, which is read once, from its first byte on: nothing can be fetched again."""

    file: Any
    address: str

    def read(self, size: int = -1) -> Any:
        try:
            return self.file.read(size)
        except Exception as error:
            raise (_unreadable(error, 1, self.address) if _may_pass(error) else error) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def _retried(call: Callable[[], A], place: str) -> A:
    """Call a function again while it fails for a reason that may pass. Raises `DataError` after the last attempt."""
    tenacity = optional("tenacity", extra="remote", needed_by=f"Reading {place}")
    attempts = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(_ATTEMPTS),
        wait=tenacity.wait_exponential(multiplier=_WAIT, exp_base=4),
        retry=tenacity.retry_if_exception(lambda error: isinstance(error, Exception) and _may_pass(_reason(error))),  # no interrupt
        reraise=True,
    )
    try:
        result: A = attempts(call)
    except Exception as raised:
        error = _reason(raised)
        if not _may_pass(error):
            raise
        raise _unreadable(error, _ATTEMPTS, place) from raised
    return result


def _reason(error: Exception) -> Exception:
    """Return what went wrong: for fsspec, a file is not there whenever a server does not say how large it is."""
    hidden = error.__cause__ if isinstance(error, FileNotFoundError) else None
    return hidden if isinstance(hidden, Exception) and _may_pass(hidden) else error


def _may_pass(error: Exception) -> bool:
    status = getattr(error, "status", None)  # of HTTP
    return not isinstance(error, _FOR_GOOD) and (status is None or status >= 500 or status in _PASSING)


def _unreadable(error: Exception, attempts: int, place: str) -> DataError:
    silent = isinstance(error, TimeoutError)
    said = "the server does not answer" if silent else ": ".join(filter(None, [type(error).__name__, str(error)]))
    return DataError(
        f"A remote file cannot be read: {said}, after {attempts} attempt{'s' * (attempts > 1)}, from {place}. Look at the connection, and "
        "run it again, or go on from the last cursor."
    )


def _split(address: str) -> tuple[Any, str]:
    filesystems = optional("fsspec.core", extra="remote", needed_by=f"Reading {address}")
    try:
        system, path = filesystems.url_to_fs(address, **_http_options(address))
    except ImportError as error:
        raise MissingExtraError(f"Reading {address} needs a package that is not installed: {error}.") from error
    except ValueError as error:
        raise ArgumentError(f"The address {address!r} cannot be read: {error}. Use a scheme that fsspec knows, as in 's3://'.") from error
    return system, path


def _http_options(address: str) -> dict[str, Any]:
    """Return the options for each scheme of HTTP in an address, which may be chained: how long to wait for a server that says nothing.

    What the user has set in fsspec's configuration stays. Without a limit for the whole answer, which is five minutes in aiohttp: a large
    file may take longer.
    """
    schemes = {part.partition("://")[0] for part in address.split("::")} & {"http", "https"}
    if not schemes:
        return {}
    kind = optional("fsspec", extra="remote", needed_by=f"Reading {address}").get_filesystem_class("http")
    limits = optional("aiohttp", extra="remote", needed_by=f"Reading {address}").ClientTimeout(sock_connect=_SILENCE, sock_read=_SILENCE)
    configured = optional("fsspec.config", extra="remote", needed_by=f"Reading {address}").apply_config(kind, {}).get("client_kwargs")
    return {scheme: {"client_kwargs": {"timeout": limits, **(configured or {})}} for scheme in schemes}


def _is_http(address: str) -> bool:
    return address.startswith(("http://", "https://"))


def _look_up(system: Any, address: str, find: Callable[[], Iterable[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """Call a function that finds files, without cached listings; return nothing where the path does not exist."""
    system.invalidate_cache()
    try:
        return _retried(lambda: list(find()), address)
    except FileNotFoundError:
        return []


def _find(system: Any, path: str, suffixes: tuple[str, ...]) -> Iterable[Mapping[str, Any]]:
    if has_magic(path) and not _is_http(path):
        return system.glob(path, detail=True).values()  # type: ignore[no-any-return]  # fsspec has no types
    about = system.info(path)
    if about["type"] != "directory":
        return [about]
    entries = [(each["name"].rsplit("/", 1)[-1], each) for each in system.ls(path, detail=True)]
    if any(each["type"] == "directory" and is_partition(name) for name, each in entries):
        below = f"{path.rstrip('/')}/"
        entries = [(name.removeprefix(below), each) for name, each in system.find(path, detail=True).items()]
        entries = [(name, each) for name, each in entries if "/" not in name or is_partition(name.partition("/")[0])]
    return [each for name, each in entries if is_shown(name) and name.lower().endswith(suffixes)]


def _named_folder(path: str) -> str:
    """Return the folder that a path names: of a pattern, what comes before it."""
    return "/".join(takewhile(lambda part: not has_magic(part), path.rstrip("/").split("/")))


def _describe(system: Any, about: Mapping[str, Any]) -> FileStamp:
    name = about["name"]
    mark = next((about[mark] for mark in _MARKS if about.get(mark)), None)
    version = blake2b(str(system.ukey(name) if mark is None else mark).encode(), digest_size=7).digest()
    return FileStamp(system.unstrip_protocol(name), int(about["size"] or 0), int.from_bytes(version, "little"))
