"""Reader for the files in tar archives. Damaged archives, incomplete archives, and several archives in one file raise errors."""

import tarfile
import zlib
from collections.abc import Generator
from typing import Any

from mlxfp.data.sources.remote_files import FileStamp
from mlxfp.support.errors import DataError, MlxfpError

_MOST_BYTES = 1 << 30  # maximum size of a file in an archive, in bytes


class _Member(tarfile.TarInfo):
    """Header of a file in an archive. A damaged header, or an archive without zeros at the end, raises an error.

    Without this class, `TarFile.next` would return no more files after a damaged header, and raise no error. All common writers end an
    archive with zeros, so an archive without zeros is cut or unfinished.
    """

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> "_Member":
        try:
            return super().fromtarfile(tarfile_)
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as error:  # type: ignore[attr-defined]  # missing in the stubs
            raise tarfile.ReadError(str(error)) from error
        except tarfile.EmptyHeaderError as error:  # type: ignore[attr-defined]  # missing in the stubs
            if not tarfile_.offset:
                raise
            raise tarfile.ReadError(
                "the zeros at the end are missing (if the archive is complete, add zeros: head -c 1024 /dev/zero >> ARCHIVE)"
            ) from error


Members = Generator[tuple[tuple[str, str], tarfile.TarInfo, bytes | None], None, None]


def tar_members(opened: Any, mode: Any, file: FileStamp, wanted: frozenset[str]) -> Members:
    """Yield ((key, extension), header, bytes) for each file of an archive, except folders, hidden files and files without an extension.

    If the extension is not in `wanted`, the bytes are None.
    """
    last = ""
    try:
        with tarfile.open(fileobj=opened, mode=mode, tarinfo=_Member, encoding="utf-8", errors="surrogateescape") as archive:
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # otherwise the archive keeps all headers
                last = member.name
                name = _split(last)
                if name is None or member.isdir():
                    continue
                _check_member(member, file)
                data = archive.extractfile(member) if name[1] in wanted else None
                yield name, member, None if data is None else data.read()
            _check_end(archive, file)
    except MlxfpError:
        raise
    except (tarfile.TarError, OSError, EOFError, ValueError, OverflowError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise damaged_tar(f"{str(error) or type(error).__name__}{f', after the file {last!r}' if last else ''}", file) from error


def _check_end(archive: tarfile.TarFile, file: FileStamp) -> None:
    """Raise `DataError` if another archive follows, as after `cat a.tar b.tar`: only the rows of the first archive would be read."""
    while block := archive.fileobj.read(tarfile.BLOCKSIZE):
        if block.strip(b"\0"):
            if block[257:262] == b"ustar":
                raise DataError(
                    f"A tar archive is followed by another archive in the same file: only the rows of the first would be read, in "
                    f"{file.path}. Join archives with tar --concatenate --file=a.tar b.tar, or read separate files."
                )
            return


def _split(name: str) -> tuple[str, str] | None:
    """Return key and extension of a file, as defined by WebDataset.

    Returns None for a hidden file and for a file without an extension.
    """
    folder, slash, base = name.rpartition("/")
    stem, _, extension = base.partition(".")
    return (f"{folder}{slash}{stem}", extension.lower()) if stem and extension else None


def _check_member(member: tarfile.TarInfo, file: FileStamp) -> None:
    if not member.isreg() or member.sparse is not None:
        kind = "a link" if member.islnk() or member.issym() else "not a file" if member.sparse is None else "a sparse file"
        raise DataError(
            f"A tar archive must contain the bytes of all files, but {member.name!r} is {kind}, in {file.path}. "
            "Write the archive again with tar --dereference --hard-dereference and without --sparse."
        )
    if not 0 <= member.size <= _MOST_BYTES:
        raise DataError(
            f"A file in a tar archive is too large for a row: {member.name!r} has {member.size:,} bytes, in {file.path}. The maximum "
            f"is {_MOST_BYTES:,} bytes. Split the file into smaller files."
        )
    try:
        member.name.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"A name in a tar archive is not UTF-8: got {member.name!r}, in {file.path}. Rename the file.") from error


def damaged_tar(reason: str, file: FileStamp) -> DataError:
    """Return the error for a damaged archive."""
    return DataError(
        f"A tar archive is damaged or ends early: {reason}, in {file.path}. Copy or write the archive again. The name of a compressed "
        "archive must end in .tar.gz or .tar.zst."
    )
