"""Cache folder of the user, and atomic writes of files. In an atomic write, a file gets its final name after all content is on the disk."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from shutil import disk_usage
from typing import TextIO

PARTIAL = ".partial"  # part of the name of an unfinished file; a killed process leaves the file behind
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # error numbers of a full disk, an exceeded user quota and a too large file
_LEAST = 1 << 16  # number of bytes; if more bytes are free, a RuntimeError does not mean a full disk


@contextmanager
def written_whole(path: Path, *, suffix: str | None = None, within: Path | None = None) -> Iterator[Path]:
    """Yield the path of a temporary file, then replace the file at `path` with the temporary file.

    The temporary file is in the folder of `path`, or in `within`, which must be on the same disk. The folder must exist. The file and its
    folder are synced. After a crash or a power cut, `path` is either the old file or the complete new file. If the `with` block raises an
    error, the temporary file is removed, and the file at `path` stays unchanged. If the disk is full, the error message contains `path` and
    the remedy. The temporary name ends in `suffix` (default: the suffix of `path`), for writers that choose a format by suffix.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with written_whole(Path(folder, "a.txt")) as file:
    ...         _ = file.write_text("all of it")
    ...     [path.name for path in Path(folder).iterdir()]
    ['a.txt']
    """
    temporary = (within or path.parent) / f".{path.name}.{token_hex(8)}{PARTIAL}{path.suffix if suffix is None else suffix}"
    try:
        with naming_full_disk(path):
            yield temporary
            _sync(temporary)
            temporary.replace(path)
            _sync(path.parent)  # write the folder to the disk as well, because the folder holds the new file name
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes, *, within: Path | None = None) -> None:
    """Write bytes to a file atomically."""
    with written_whole(path, within=within) as file:
        file.write_bytes(content)


@contextmanager
def naming_full_disk(path: Path) -> Iterator[None]:
    """Replace errors of a full disk by an `OSError` with the path and the remedy. MLX raises `RuntimeError` for a full disk."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        number = error.errno if isinstance(error, OSError) else errno.ENOSPC
        if number not in _FULL or (isinstance(error, RuntimeError) and disk_usage(path.parent).free > _LEAST):
            raise
        raise OSError(number, f"{os.strerror(number)}. Make room for the file, then run again", str(path)) from error


def append(file: TextIO, text: str) -> None:
    """Append text to an open file. The text is visible to readers at once. If the disk is full, the error names the file and the remedy."""
    with naming_full_disk(Path(file.name)):
        try:
            file.write(text)
            file.flush()
        except OSError:
            with suppress(OSError):
                file.close()  # Close the file here, because a later `close` would raise the same error again.
            raise


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def user_cache() -> Path:
    """Return the cache folder of mlxfp: `$XDG_CACHE_HOME/mlxfp`, otherwise `~/.cache/mlxfp`."""
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (configured if configured.is_absolute() else Path.home() / ".cache") / "mlxfp"


def first_on_machine(text: str) -> bool:
    """Return True if no earlier call of this user had the same text. The texts are stored in the cache folder.

    Also return True if the folder cannot be written.
    """
    line, file = " ".join(text.split()), user_cache() / "printed_warnings.txt"
    with suppress(OSError, UnicodeDecodeError):
        if line in file.read_text(encoding="utf-8").splitlines():
            return False
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(line + "\n")
    return True
