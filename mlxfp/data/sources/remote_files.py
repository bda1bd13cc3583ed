"""Access to remote files with fsspec. A remote file has an address such as `s3://bucket/train.csv`."""

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
from mlxfp.support.errors import ArgumentError, DataError, MissingExtraError, MissingFileError, without_secrets
from mlxfp.support.optional import optional

# Number of bytes read ahead from a remote file. The defaults of fsspec, up to 50 MB, waste transfers whenever reading starts or stops.
# With less read-ahead, reading would wait too often for an answer. An answer of an object store takes about 50 ms.
_AHEAD = 1 << 22

_ATTEMPTS, _WAIT = 5, 0.1  # maximum number of attempts, and seconds before the first retry; each further pause is four times as long
_SILENCE = 60.0  # seconds without data after which an HTTP request fails
_PASSING = (408, 429)  # HTTP codes below 500 after which a retry may succeed: request timeout, too many requests
_ABSENT = (404, 410)  # HTTP codes of a missing file
_FOR_GOOD = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, ValueError, TypeError, AttributeError, MemoryError)
A = TypeVar("A")

# File attributes that change only if the content of the file changes, most reliable first.
_MARKS = ("ETag", "etag", "blob_id", "Last-Modified", "LastModified", "last_modified", "mtime", "created")


class FileStamp(NamedTuple):
    """Path, size and version of a file. If path, size and version are equal, the file has probably not changed."""

    path: str
    size: int  # bytes on disk
    modified: int  # for a local file, modification time in nanoseconds; for a remote file, a hash of the version
    partition: Partition = ()  # partition columns from folder names such as `year=2024`
    hash: str | None = None  # SHA-256 hash in the manifest of the folder, if there is one

    @property
    def version(self) -> tuple[str, int, int]:
        """Cache key that changes when the file changes."""
        return self.path, self.size, self.modified


def is_remote(path: str) -> bool:
    """Return True for an address with a scheme, such as `https://example.org/a.csv`."""
    return "://" in path


def is_shown(name: str) -> bool:
    """Return True if neither the file name nor a folder name on the path begins with a dot."""
    return not any(part.startswith(".") for part in name.split("/"))


def find_remote(address: str, suffixes: tuple[str, ...]) -> tuple[FileStamp, ...]:
    """Return the files that match an address. If the file system can list files, the address may be a pattern or a folder."""
    system, path = _split(address)
    infos = [info for info in _look_up(system, address, lambda: _find(system, path, suffixes)) if info["type"] == "file"]
    if not infos:
        raise MissingFileError(
            f"There is no file at {address!r}. Check the address. In a folder, only files with the suffix {' or '.join(suffixes)} are read."
        )
    # Folders below the first name with a wildcard can be partitions. Without a wildcard, these are the folders below the whole path.
    below = "/".join([*takewhile(lambda part: not has_magic(part), path.rstrip("/").split("/")), ""])
    folders = (info["name"].removeprefix(below).split("/")[:-1] if info["name"].startswith(below) else () for info in infos)
    stamps = (_describe(system, info)._replace(partition=partition_of(names)) for info, names in zip(infos, folders, strict=True))
    return tuple(sorted(stamps))


def list_remote(address: str, suffixes: tuple[str, ...]) -> tuple[FileStamp, ...]:
    """Return the files in a folder and its subfolders, with paths relative to the folder."""
    system, path = _split(address)
    below = f"{path.rstrip('/')}/"
    infos = [] if _is_http(address) else _look_up(system, address, lambda: system.find(path, detail=True).values())
    named = {info["name"].removeprefix(below): info for info in infos if info["name"].startswith(below)}
    shown = [name for name in named if is_shown(name) and name.lower().endswith(suffixes)]
    if not shown:
        raise MissingFileError(f"No file in the folder {address!r} or below it ends in {', '.join(suffixes)}. Check the address.")
    return tuple(sorted(_describe(system, named[name])._replace(path=name) for name in shown))


def read_remote(folder: str, names: Sequence[str]) -> list[bytes]:
    """Return the contents of several files in a folder. The files are fetched concurrently if the file system supports this."""
    system, path = _split(folder)
    ends = [None] * len(names)  # read whole files with `cat_ranges`, because `cat` would treat [ in a file name as a pattern
    paths = [f"{path.rstrip('/')}/{name}" for name in names]
    read: list[bytes] = _retried(lambda: system.cat_ranges(paths, ends, ends, on_error="raise"), folder)
    return read


def open_remote(address: str, *, exactly: bool = False, jumps: bool = False) -> pa.NativeFile:
    """Open a remote file. Only the requested bytes are fetched, if the file system can do so.

    `exactly=True` disables read-ahead, for a reader that requests large ranges of bytes.

    `jumps=True` is for a reader that moves back and forth. The whole file is fetched if the server does not support range requests, or if
    the server gives no file size (because the server compresses the answer).
    """
    system, path = _split(address)
    ahead = {"cache_type": "none"} if exactly else {"block_size": _AHEAD}
    opens = partial(system.open, path, "rb", **ahead)
    opened = _retried(opens, address)
    sized = getattr(opened, "size", None) is not None  # a server may omit the size, or compress the answer
    file = _Retried(opened, opens, partial(system.open, path, "rb", block_size=0), address, jumps) if sized else _Unsized(opened, address)
    return pa.PythonFile(file, mode="r") if sized or not jumps else pa.BufferReader(file.read())


class _Retried(RawIOBase):
    """Remote file that is reopened after a failed or short read, because a connection can break at any byte."""

    def __init__(self, file: Any, opens: Callable[[], Any], streams: Callable[[], Any], address: str, jumps: bool) -> None:  # noqa: FBT001
        """Store `file`, opened by `opens()` at offset 0. `streams()` opens the same file for reading in order, without range requests."""
        self.file, self.opens, self.streams, self.address, self.jumps = file, opens, streams, address, jumps
        self.at, self.size = 0, int(file.size)
        self.ranges = True  # False if the server does not support range requests

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
        remaining = max(0, self.size - self.at)
        wanted = remaining if size < 0 else min(size, remaining)
        data = _retried(lambda: self._read(wanted), f"byte {self.at:,} of {self.size:,} of {self.address}")
        self.at += wanted
        return data

    def close(self) -> None:
        if not self.closed:
            self.file.close()
        super().close()

    def _read(self, size: int) -> bytes:
        if self.file.closed:
            self.file = self.opens() if self.ranges else _Stream(self.streams(), whole=self.jumps)
        try:
            self.file.seek(self.at)
            data: bytes = self.file.read(size)
        except ValueError as error:
            if not self.ranges or "range requests" not in str(error):
                raise
            self.file.close()
            self.ranges = False
            return self._read(size)
        except Exception:
            self.file.close()  # the next call of `_read` opens the file again
            raise
        if len(data) < size:
            self.file.close()
            raise ConnectionError(f"the server sent only {len(data):,} of {size:,} bytes")
        return data


class _Stream:
    """File that is read in order, because the server does not support range requests.

    `whole=True`: the whole content stays in memory. `whole=False`: a seek to an earlier offset closes the file and raises
    `ConnectionError`. The caller then opens the file again.
    """

    def __init__(self, stream: Any, *, whole: bool) -> None:
        self.stream, self.at, self.closed = stream, 0, False
        self.content = self._received(-1) if whole else None

    def seek(self, offset: int) -> None:
        if self.content is None and offset < self.at:
            self.closed = True
            raise ConnectionError("the server does not support range requests, and the reader moved back to an earlier byte")
        while self.content is None and self.at < offset and (skipped := len(self._received(min(_AHEAD, offset - self.at)))):
            self.at += skipped
        self.at = offset

    def read(self, size: int) -> bytes:
        data = self._received(size) if self.content is None else self.content[self.at : self.at + size]
        self.at += len(data)
        return data

    def close(self) -> None:
        self.closed = True
        self.stream.close()

    def _received(self, size: int) -> bytes:
        """Return the next bytes. A single `read` of a stream returns only the bytes that have arrived."""
        parts, remaining = [], size
        while remaining and (part := self.stream.read(remaining)):
            parts.append(part)
            remaining -= len(part) if size >= 0 else 0
        return b"".join(parts)


@frozen
class _Unsized:
    """Remote file of unknown size. The file is read once from start to end, without retries."""

    file: Any
    address: str

    def read(self, size: int = -1) -> Any:
        try:
            return self.file.read(size)
        except Exception as error:
            if not _may_pass(error):
                raise
            raise _unreadable(error, 1, self.address) from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def _retried(call: Callable[[], A], location: str) -> A:
    """Call a function. After an error that may be temporary, repeat the call. Raises `DataError` after the last attempt."""
    tenacity = optional("tenacity", extra="remote", needed_by=f"Reading {location}")
    attempts = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(_ATTEMPTS),
        wait=tenacity.wait_exponential(multiplier=_WAIT, exp_base=4),
        # Retry only after a subclass of Exception, so that KeyboardInterrupt ends the retries.
        retry=tenacity.retry_if_exception(lambda error: isinstance(error, Exception) and _may_pass(_reason(error))),
        reraise=True,
    )
    try:
        result: A = attempts(call)
    except Exception as raised:
        # If the address contains a secret, the new error has no cause: the traceback of a cause would show the secret.
        error, cause = _reason(raised), None if without_secrets(location) != location else raised
        if _may_pass(error):
            raise _unreadable(error, _ATTEMPTS, location) from cause
        status = getattr(raised.__cause__, "status", None)
        if isinstance(raised, FileNotFoundError) and status not in (None, *_ABSENT):
            raise _refused(raised.__cause__, status, location) from cause
        if cause is not None:
            raise
        absent = isinstance(error, FileNotFoundError)
        raise (
            MissingFileError(f"There is no file at {location}. Check the address.") if absent else _unreadable(error, 1, location)
        ) from None
    return result


def _reason(error: Exception) -> Exception:
    """Return the cause of a `FileNotFoundError` if a retry may help, else `error`. fsspec may raise `FileNotFoundError` for any error."""
    hidden = error.__cause__ if isinstance(error, FileNotFoundError) else None
    return hidden if isinstance(hidden, Exception) and _may_pass(hidden) else error


def _may_pass(error: Exception) -> bool:
    status = getattr(error, "status", None)  # HTTP status code
    return not isinstance(error, _FOR_GOOD) and (status is None or status >= 500 or status in _PASSING)


def _unreadable(error: Exception, attempts: int, location: str) -> DataError:
    silent = isinstance(error, TimeoutError)
    reason = "the server does not answer" if silent else ": ".join(filter(None, [type(error).__name__, str(error)]))
    return DataError(
        f"A remote file cannot be read: {reason}, after {attempts} attempt{'s' * (attempts > 1)}, from {location}. Check the connection. "
        "Then run again, or resume from the last cursor."
    )


def _refused(error: Any, status: int, location: str) -> DataError:
    """Return the error for a request that the server refused. fsspec itself reports such requests as missing files."""
    loops = status < 400  # aiohttp reports too many redirects with the code of a redirect, or with 0
    reason = "the server redirects in a loop" if loops else f"the server answers {status} {getattr(error, 'message', '')}".rstrip()
    remedy = (
        "Open the address in a browser, and use the final address." if loops else "Check the address and your permission to read the file."
    )
    return DataError(f"A remote file cannot be read: {reason}, from {location}. {remedy}")


def _split(address: str) -> tuple[Any, str]:
    filesystems = optional("fsspec.core", extra="remote", needed_by=f"Reading {address}")
    try:
        system, path = filesystems.url_to_fs(address, **_http_options(address))
    except ImportError as error:
        raise MissingExtraError(f"Reading {address} needs a package that is not installed: {error}.") from error
    except (ValueError, TypeError) as error:  # fsspec raises TypeError if the file system needs further arguments
        raise ArgumentError(
            f"The address {address!r} cannot be read: {error}. Use a scheme that fsspec opens by address alone, such as 's3://'."
        ) from error
    return system, path


def _http_options(address: str) -> dict[str, Any]:
    """Return timeout options for each HTTP scheme in an address. A chained address such as `zip://a.csv::https://...` has several schemes.

    The user's fsspec configuration takes precedence. The total time of a request is unlimited, because large files take longer than the
    five minutes that aiohttp allows by default.
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
    """Return the result of a search for remote files. Cached listings are not used. Returns an empty list if the path does not exist."""
    system.invalidate_cache()
    try:
        return _retried(lambda: list(find()), address)
    except FileNotFoundError:
        return []


def _find(system: Any, path: str, suffixes: tuple[str, ...]) -> Iterable[Mapping[str, Any]]:
    if has_magic(path) and not _is_http(path):
        return system.glob(path, detail=True).values()  # type: ignore[no-any-return]  # fsspec has no types
    info = system.info(path)
    if info["type"] != "directory":
        return [info]
    entries = [(entry["name"].rsplit("/", 1)[-1], entry) for entry in system.ls(path, detail=True)]
    if any(entry["type"] == "directory" and is_partition(name) for name, entry in entries):
        below = f"{path.rstrip('/')}/"
        entries = [(name.removeprefix(below), entry) for name, entry in system.find(path, detail=True).items()]
        entries = [(name, entry) for name, entry in entries if "/" not in name or is_partition(name.partition("/")[0])]
    return [entry for name, entry in entries if is_shown(name) and name.lower().endswith(suffixes)]


def _describe(system: Any, info: Mapping[str, Any]) -> FileStamp:
    name = info["name"]
    mark = next((info[mark] for mark in _MARKS if info.get(mark)), None)
    version = blake2b(str(system.ukey(name) if mark is None else mark).encode(), digest_size=7).digest()
    return FileStamp(system.unstrip_protocol(name), int(info["size"] or 0), int.from_bytes(version, "little"))
