"""Tar archives of WebDataset: the files of one key, which stand next to each other, are one row.

A plain local archive is read by number: its headers say where every file is, and are read once. A compressed or remote one is read in
order. Positions are (archive, row in it), for both.
"""

import tarfile
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from functools import cached_property, lru_cache
from io import FileIO
from itertools import islice
from typing import Any, BinaryIO, TypeVar

import attrs
import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.chunks import HIDDEN, Example, RecordBatch, Schema
from mlxfp.core.datasets import Dataset
from mlxfp.core.planning import SAMPLE_ROWS
from mlxfp.core.sources import Position, SourceTraits
from mlxfp.data.sources.files import FileSource, Paths, find_place, open_bytes, packing, place
from mlxfp.data.sources.remote_files import FileStamp, is_remote
from mlxfp.support.checks import as_strings, explain_call
from mlxfp.support.errors import ArgumentError, DataError, MissingFileError, MlxfpError, SchemaError, listed, suggest
from mlxfp.support.progress import Progress

A = TypeVar("A")
_Row = tuple[str, dict[str, bytes | None]]  # the key, and the bytes of each file by its extension; None: they are not wanted

_Rows = Generator[_Row, None, None]

_KEY = "key"
_ROWS_AT_ONCE = 64  # of a chunk, as of images in a folder
_BYTES_AT_ONCE = 16 << 20  # of a chunk, which then ends earlier
_MOST_BYTES = 1 << 30  # of a file, which is a value of a row


@explain_call
def read_tar(path: Paths, *, columns: Sequence[str] | None = None) -> Dataset[Example]:
    """Read tar archives of WebDataset, lazily: the files of one key are one row, which holds their bytes.

    One path, several, a pattern such as `"train-*.tar"`, or a folder; gzip and zstd by suffix. The key of a file is its name up to the
    first dot behind the last /, and the rest its extension, in lower case; files of one key stand next to each other. Columns: `key`
    (string), and one for each extension (binary; null where a row lacks it): `columns`, or else those of the first 128 rows. With
    `columns`, files with other extensions are left out. Folders, hidden files and files without an extension are ignored.

    Rows of plain local archives can be taken in any order: their headers are read once, when they are first needed. Compressed ones, and
    remote ones as in `s3://bucket/a.tar` (extra `remote`), are read in order, and a run that resumes reads them up to its row again.

    Reading raises `DataError` naming archive and file for one that is damaged, ends early, is a link, sparse or a duplicate, and for a key
    that comes back later; `SchemaError` for an extension that the first rows lack; `MissingFileError` where a path matches no file.

    >>> import tarfile
    >>> from io import BytesIO
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with tarfile.open(f"{folder}/train-0.tar", "w") as archive:
    ...         for name, data in {"a/1.txt": b"yes", "a/1.cls": b"1", "a/2.txt": b"no", "a/2.cls": b"0"}.items():
    ...             member = tarfile.TarInfo(name)
    ...             member.size = len(data)
    ...             archive.addfile(member, BytesIO(data))
    ...     list(read_tar(f"{folder}/*.tar"))
    [{'key': 'a/1', 'txt': b'yes', 'cls': b'1'}, {'key': 'a/2', 'txt': b'no', 'cls': b'0'}]

    See also: `shuffle(files=)`, which mixes archives; `collators.vision`, which decodes images; `read_images`, for files in folders.
    """
    wanted = () if columns is None else as_strings("columns", columns, empty=False)
    for name in wanted:
        if name in (_KEY, *HIDDEN):
            raise ArgumentError(f"columns are the extensions of files, got {name!r}, which is not one. Leave it out: key is always there.")
    return Dataset(_ReadTar(path, wanted))


@frozen(repr=False)
class _ReadTar(FileSource):
    columns: tuple[str, ...] = ()
    suffixes = (".tar", ".tar.gz", ".tar.zst")

    def schema(self) -> Schema:
        return self.select(self.whole_schema())

    def whole_schema(self) -> Schema:
        """Return the key and the extensions: those declared, or those of the first rows."""
        found = self.columns or _first_extensions(self.files())
        return pa.schema({_KEY: pa.string(), **dict.fromkeys(found, pa.binary())})

    @property
    def traits(self) -> SourceTraits:
        return attrs.evolve(
            super().traits,
            taken_in=frozenset({"threads", "processes"}),
            restricted=lambda columns, conditions: attrs.evolve(self, kept=tuple(columns)),
        )

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        files = self.files()
        first, row, _ = find_place(files, position)
        schema = self.schema()
        for number in range(first, len(files)):
            with closing(self._rows(files[number], schema, row)) as rows:
                for chunk, is_last in _chunks(rows, schema):
                    row += chunk.num_rows
                    yield chunk, place(files, number + 1, 0, 0) if is_last else place(files, number, row, 0)
            row = 0

    @property
    def indexable(self) -> bool:
        with suppress(MissingFileError):
            return not any(map(_is_read_in_order, self.files()))
        return False

    @cached_property
    def index(self) -> tuple[tuple["_Archive", ...], NDArray[np.int64]]:
        """All archives, and where the rows of each end, int64[N]. Found once: `take` is called too often to look each time."""
        files = self.files()
        with Progress("count rows", unit="files", total=lambda: len(files)) as progress:
            archives = tuple(map(_read_archive, progress.over(files)))
        for archive in archives:
            self._check(archive.file, archive.firsts())
        return archives, np.cumsum([len(archive.keys) for archive in archives])

    def length(self) -> int | None:
        return int(self.index[1][-1]) if self.indexable else None

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        schema, (archives, ends) = self.schema(), self.index
        if len(indices) and not 0 <= indices.min() <= indices.max() < ends[-1]:
            raise ArgumentError(
                f"A row is out of range: got {indices.min()} to {indices.max()}, where there are {ends[-1]:,} rows, in {self!r}. Take rows "
                "from 0 to one less than their number."
            )
        places = np.searchsorted(ends, indices, side="right")
        within = indices - np.concatenate([[0], ends])[places]
        with ExitStack() as stack:
            opened = {place: stack.enter_context(FileIO(archives[place].file.path)) for place in np.unique(places).tolist()}
            rows = [archives[place].row(row, schema, opened[place]) for place, row in zip(places.tolist(), within.tolist(), strict=True)]
        return _to_chunk(rows, schema)

    def notes(self) -> tuple[str, ...]:
        with suppress(MissingFileError):
            if any(map(_is_read_in_order, self.files())):
                return (*super().notes(), "resuming inside a compressed or remote archive reads everything before the cursor")
        return super().notes()

    def _rows(self, file: FileStamp, schema: Schema, first: int) -> _Rows:
        """Yield the rows of an archive from number `first` on, with the bytes of the files that are wanted."""
        if _is_read_in_order(file):
            for row in islice(_stream(file, frozenset(schema.names)), first, None):
                self._check(file, dict.fromkeys(row[1], row[0]))
                yield row
            return
        archive = _read_archive(file)
        self._check(file, archive.firsts())
        with FileIO(file.path) as opened:
            for number in range(first, len(archive.keys)):
                yield archive.row(number, schema, opened)

    def _check(self, file: FileStamp, found: dict[str, str]) -> None:
        """Raise `SchemaError` for an extension that the first rows lack; `found` has those of an archive, each with a key."""
        if self.columns:
            return
        known = [name for name in self.whole_schema().names if name != _KEY]
        for extension, key in found.items():
            if extension not in known:
                raise SchemaError(
                    f"A row has a file with an extension that the first rows lack: got {f'{key}.{extension}'!r}, where the columns are "
                    f"{listed(known)}, in {file.path}.{suggest(extension, known)} Declare those you need, as in "
                    f"columns={[*known, extension]!r:.200}; others are then left out."
                )


@frozen(eq=False)
class _Archive:
    """Where the files of a plain archive are."""

    file: FileStamp
    keys: tuple[str, ...]
    spans: dict[str, NDArray[np.int64]]  # by extension, where the bytes of each row begin and how many they are, int64[N, 2]; -1: none

    def firsts(self) -> dict[str, str]:
        """Return the extensions, each with the first key that has it."""
        return {name: self.keys[int(np.argmax(spans[:, 1] >= 0))] for name, spans in self.spans.items()}

    def row(self, number: int, schema: Schema, opened: BinaryIO | FileIO) -> _Row:
        """Read the files of a row."""
        wanted = [name for name in schema.names if name != _KEY and name in self.spans]
        spans = {name: self.spans[name][number].tolist() for name in wanted}
        key = self.keys[number]
        return key, {name: self._bytes(opened, start, size, f"{key}.{name}") for name, (start, size) in spans.items() if size >= 0}

    def _bytes(self, opened: BinaryIO | FileIO, start: int, size: int, name: str) -> bytes:
        opened.seek(start)
        data = opened.read(size) or b""
        if len(data) < size:
            raise _damaged(f"got {len(data):,} of {size:,} bytes of {name!r}", self.file)
        return data


@lru_cache(maxsize=16)
def _read_archive(file: FileStamp) -> _Archive:
    """Read the headers of a plain archive."""
    keys: list[str] = []
    spans: dict[str, list[tuple[int, int, int]]] = {}
    with FileIO(file.path) as opened, closing(_members(opened, "r:", file, frozenset())) as members:
        for row, (key, files) in enumerate(_grouped(((name, member) for name, member, _ in members), file)):
            keys.append(key)
            for extension, member in files.items():
                end = member.offset_data + member.size
                if end > file.size:
                    raise _damaged(f"it has {file.size:,} bytes, and {member.name!r} goes on to {end:,}", file)
                spans.setdefault(extension, []).append((row, member.offset_data, member.size))
    return _Archive(file, tuple(keys), {name: _table(found, len(keys)) for name, found in spans.items()})


def _table(found: list[tuple[int, int, int]], count: int) -> NDArray[np.int64]:
    rows = np.array(found, np.int64)
    out = np.full((count, 2), -1, np.int64)
    out[rows[:, 0]] = rows[:, 1:]
    return out


@lru_cache(maxsize=64)
def _first_extensions(files: tuple[FileStamp, ...]) -> tuple[str, ...]:
    """Return the extensions of the first rows of the first archive that has rows, in the order in which they come."""
    for file in files:
        if _is_read_in_order(file):
            with closing(_stream(file, frozenset())) as rows:
                found = [extension for _, row in islice(rows, SAMPLE_ROWS) for extension in row]
        else:
            found = [name for name, spans in _read_archive(file).spans.items() if (spans[:SAMPLE_ROWS, 1] >= 0).any()]
        taken = next((name for name in found if name in (_KEY, *HIDDEN)), None)
        if taken is not None:
            raise SchemaError(
                f"A file has an extension that no column can be named by: {taken!r}, in {file.path}. Choose others with columns=."
            )
        if found:
            return tuple(dict.fromkeys(found))
    return ()


def _is_read_in_order(file: FileStamp) -> bool:
    return is_remote(file.path) or packing(file.path) is not None


def _stream(file: FileStamp, wanted: frozenset[str]) -> _Rows:
    """Read the rows of an archive in order, with the bytes of files whose extensions are wanted."""
    with closing(open_bytes(file.path)) as opened, closing(_members(opened, "r|", file, wanted)) as members:
        yield from _grouped(((name, data) for name, _, data in members), file)


class _Member(tarfile.TarInfo):
    """A header. `TarFile.next` takes a damaged one that is not the first for the end of the archive: here it is an error."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> "_Member":
        try:
            return super().fromtarfile(tarfile_)
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as error:  # type: ignore[attr-defined]  # not in the stubs
            raise tarfile.ReadError(str(error)) from error


_Found = Generator[tuple[tuple[str, str], tarfile.TarInfo, bytes | None], None, None]


def _members(opened: Any, mode: Any, file: FileStamp, wanted: frozenset[str]) -> _Found:
    """Yield the files of an archive that belong to rows: (key, extension), header, and the bytes where the extension is wanted."""
    last = ""
    try:
        with tarfile.open(fileobj=opened, mode=mode, tarinfo=_Member, encoding="utf-8", errors="surrogateescape") as archive:
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # it would keep all headers
                last = member.name
                name = _split(last)
                if name is None or member.isdir():
                    continue
                _check_member(member, file)
                data = archive.extractfile(member) if name[1] in wanted else None
                yield name, member, None if data is None else data.read()
    except MlxfpError:
        raise
    except (tarfile.TarError, OSError, EOFError, ValueError, OverflowError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise _damaged(f"{str(error) or type(error).__name__}{f', behind {last!r}' if last else ''}", file) from error


def _split(name: str) -> tuple[str, str] | None:
    """Return the key and the extension of a file as WebDataset defines them; None for hidden files and those without an extension."""
    folder, slash, base = name.rpartition("/")
    stem, _, extension = base.partition(".")
    return (f"{folder}{slash}{stem}", extension.lower()) if stem and extension else None


def _check_member(member: tarfile.TarInfo, file: FileStamp) -> None:
    if not member.isreg() or member.sparse is not None:
        what = "a link" if member.islnk() or member.issym() else "not a file" if member.sparse is None else "a sparse file"
        raise DataError(
            f"A tar archive has no bytes for a part of a row: {member.name!r} is {what}, in {file.path}. Write it again with the files "
            "themselves, as with tar --dereference --hard-dereference, and without --sparse."
        )
    if not 0 <= member.size <= _MOST_BYTES:
        raise DataError(
            f"A file in a tar archive is too large for a row: {member.name!r} has {member.size:,} bytes, at most {_MOST_BYTES:,} in "
            f"{file.path}. Cut it into parts."
        )
    try:
        member.name.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"A name in a tar archive is not UTF-8: got {member.name!r}, in {file.path}. Rename the file.") from error


def _grouped(members: Iterable[tuple[tuple[str, str], A]], file: FileStamp) -> Iterator[tuple[str, dict[str, A]]]:
    """Join the neighbouring files of one key."""
    row: tuple[str, dict[str, A]] | None = None
    seen: set[str] = set()
    for (key, extension), value in members:
        if row is None or row[0] != key:
            if row is not None:
                yield row
            if key in seen:
                raise DataError(
                    f"The files of a row do not stand next to each other in a tar archive: got {f'{key}.{extension}'!r} behind the files "
                    f"of another row, in {file.path}. Write it again with sorted names, as with tar --sort=name."
                )
            seen.add(key)
            row = (key, {})
        if extension in row[1]:
            raise DataError(
                f"A tar archive has a duplicate file: {f'{key}.{extension}'!r}, in {file.path}. Write it again, with each file once."
            )
        row[1][extension] = value
    if row is not None:
        yield row


def _chunks(rows: Iterable[_Row], schema: Schema) -> Iterator[tuple[RecordBatch, bool]]:
    """Yield the rows of an archive in chunks, each with whether it is the last."""
    held: list[_Row] = []
    size = 0
    for row in rows:
        if len(held) == _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield _to_chunk(held, schema), False
            held, size = [], 0
        held.append(row)
        size += sum(len(data or b"") for data in row[1].values())
    if held:
        yield _to_chunk(held, schema), True


def _to_chunk(rows: Sequence[_Row], schema: Schema) -> RecordBatch:
    columns = [
        pa.array([key if name == _KEY else files.get(name) for key, files in rows], kind)
        for name, kind in zip(schema.names, schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _damaged(reason: str, file: FileStamp) -> DataError:
    return DataError(
        f"A tar archive is damaged or ends early: {reason}, in {file.path}. Copy or write it again. If it is compressed, its name must end "
        "in .tar.gz or .tar.zst."
    )
