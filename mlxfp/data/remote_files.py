"""Files elsewhere, named by an address such as `s3://bucket/train.csv`: found and opened through fsspec."""

from glob import has_magic
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from mlxfp.core._optional import optional
from mlxfp.core.errors import MissingFileError


def is_remote(path: str) -> bool:
    """Whether a path is an address with a scheme in front.

    >>> is_remote("https://example.org/a.csv"), is_remote("data/a.csv")
    (True, False)
    """
    return "://" in path


def find_remote(address: str, suffixes: tuple[str, ...]) -> tuple[tuple[str, int, int], ...]:
    """Return the files that an address stands for, as (address, size in bytes, a number that changes when the file does).

    Patterns and folders are looked up as those of local paths are, where the place has such: of HTTP, an address is one file. Raises
    `MissingFileError` where there is none.
    """
    system, path = _split(address)
    single = address.startswith(("http://", "https://"))
    if not single and has_magic(path):
        found = sorted(name for name in system.glob(path) if system.isfile(name))
    elif not single and system.isdir(path):
        names = (name for name in system.ls(path, detail=False) if not name.rsplit("/", 1)[-1].startswith("."))
        found = sorted(name for name in names if name.lower().endswith(suffixes) and system.isfile(name))
    else:
        found = [path] if _exists(system, path) else []
    if not found:
        raise MissingFileError(
            f"No file is found at {address!r}. Check the address; of a folder, only files in {', '.join(suffixes)} are read."
        )
    return tuple(_describe(system, name) for name in found)


def open_remote(address: str) -> pa.NativeFile:
    """Open a file for reading from any byte on: where the place allows it, only the parts that are read are fetched."""
    system, path = _split(address)
    return pa.PythonFile(system.open(path, "rb"), mode="r")


def _split(address: str) -> tuple[Any, str]:
    filesystems = optional("fsspec.core", extra="remote", needed_by=f"Reading {address}")
    system, path = filesystems.url_to_fs(address)
    return system, path


def _exists(system: Any, path: str) -> bool:
    try:
        system.info(path)  # exists() would fetch the whole file over HTTP
    except FileNotFoundError:
        return False
    return True


def _describe(system: Any, path: str) -> tuple[str, int, int]:
    version = blake2b(str(system.ukey(path)).encode(), digest_size=7).digest()
    return system.unstrip_protocol(path), int(system.size(path) or 0), int.from_bytes(version, "little")
