"""Reader of tar archives in WebDataset format: neighbouring files with the same key form a row.

An uncompressed local archive has random access through an index of its headers, which is read once. A compressed or remote archive is
read in order. In both cases, a resume position is (number of the archive, number of the row in the archive).
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from functools import cached_property, lru_cache
from io import FileIO
from itertools import islice
from typing import BinaryIO, TypeVar

import attrs
import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.chunks import HIDDEN, Example, RecordBatch, Schema
from mlxfp.core.datasets import Dataset
from mlxfp.core.planning import SAMPLE_ROWS
from mlxfp.core.sources import Position, SourceTraits
from mlxfp.data.file_search import open_plain
from mlxfp.data.sources.files import FileSource, Paths, check_unchanged, open_bytes, packing, parse_position, position_in
from mlxfp.data.sources.records.tar_members import damaged_tar, tar_members
from mlxfp.data.sources.remote_files import FileStamp, is_remote
from mlxfp.support.checks import as_strings, explain_call
from mlxfp.support.errors import ArgumentError, DataError, MissingFileError, SchemaError, listed, suggest
from mlxfp.support.progress import Progress

A = TypeVar("A")
# Row of an archive: the key, and a dict from file extensions to bytes. Files that are not read have None instead of bytes.
_Row = tuple[str, dict[str, bytes | None]]

_Rows = Generator[_Row, None, None]

_KEY = "key"
_ROWS_AT_ONCE = 64  # maximum number of rows in a chunk
_BYTES_AT_ONCE = 16 << 20  # A chunk with this number of bytes ends, even if the chunk has fewer than 64 rows.


@explain_call
def read_tar(path: Paths, *, columns: Sequence[str] | None = None) -> Dataset[Example]:
    """Read WebDataset tar archives lazily. Files with the same key form a row, which holds the bytes of these files.

    `path` is a path, several paths, a pattern such as `"train-*.tar"`, or a folder. Compression (gzip, zstd) is detected by suffix. The
    key of a file is its name up to the first dot after the last /. The rest of the name, in lower case, is the extension. Files with
    the same key must be neighbours. Folders, hidden files and files without an extension are ignored.

    The columns are `key` (string) and one binary column per extension, which is null for a missing file. The columns are the extensions
    in the first 128 rows, unless `columns` lists the extensions to read.

    Uncompressed local archives have random access: their headers are read once, on first use. Compressed archives, and remote archives
    such as `s3://bucket/a.tar` (extra `remote`), are read in order. A resumed run reads these archives again up to the next row.

    Reading raises

    - `DataError` with archive and file for a damaged or truncated archive, a link, a sparse or duplicate file, and a key in two separate
      places,
    - `SchemaError` for an extension missing from the first rows,
    - `MissingFileError` if no file matches a path.

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
            raise ArgumentError(f"columns must be file extensions, got the reserved name {name!r}. Remove the name from columns=.")
    return Dataset(_ReadTar(path, wanted))


@frozen(repr=False)
class _ReadTar(FileSource):
    columns: tuple[str, ...] = ()
    suffixes = (".tar", ".tar.gz", ".tar.zst")

    def schema(self) -> Schema:
        return self.select(self.whole_schema())

    def whole_schema(self) -> Schema:
        """Return the schema: the column `key` (common name of the files of a row), and one binary column per file extension.

        If the user has named no columns, the first rows determine the extensions.
        """
        extensions = self.columns or _first_extensions(self.files())
        return pa.schema({_KEY: pa.string(), **dict.fromkeys(extensions, pa.binary())})

    @property
    def traits(self) -> SourceTraits:
        return attrs.evolve(
            super().traits,
            take_workers=frozenset({"threads", "processes"}),
            restricted=lambda columns, conditions: attrs.evolve(self, kept=tuple(columns)),
        )

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        files = self.files()
        first, row, _ = parse_position(files, position)
        schema = self.schema()
        for number in range(first, len(files)):
            with closing(self._rows(files[number], schema, row)) as rows:
                for chunk, is_last in _chunks(rows, schema):
                    row += chunk.num_rows
                    if is_last:
                        check_unchanged(files[number])
                    yield chunk, position_in(files, number + 1, 0, 0) if is_last else position_in(files, number, row, 0)
            row = 0

    @property
    def indexable(self) -> bool:
        with suppress(MissingFileError):
            return not any(map(_is_read_in_order, self.files()))
        return False

    @cached_property
    def index(self) -> tuple[tuple["_Archive", ...], NDArray[np.int64]]:
        """Table of contents of each archive, and the cumulative number of rows at the end of each archive, int64[N]."""
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
        numbers = np.searchsorted(ends, indices, side="right")
        within = indices - np.concatenate([[0], ends])[numbers]
        with ExitStack() as stack:
            opened = {number: stack.enter_context(open_plain(archives[number].file.path)) for number in np.unique(numbers).tolist()}
            rows = [
                archives[number].row(row, schema, opened[number]) for number, row in zip(numbers.tolist(), within.tolist(), strict=True)
            ]
        for number in opened:
            check_unchanged(archives[number].file)
        return _to_chunk(rows, schema)

    def notes(self) -> tuple[str, ...]:
        with suppress(MissingFileError):
            if any(map(_is_read_in_order, self.files())):
                return (*super().notes(), "resuming inside a compressed or remote archive reads everything before the cursor")
        return super().notes()

    def _rows(self, file: FileStamp, schema: Schema, first: int) -> _Rows:
        """Yield the rows of an archive, starting with row `first`. Files are skipped if `schema` has no column for their extension."""
        if _is_read_in_order(file):
            for row in islice(_stream(file, frozenset(schema.names)), first, None):
                self._check(file, dict.fromkeys(row[1], row[0]))
                yield row
            return
        archive = _read_archive(file)
        self._check(file, archive.firsts())
        with open_plain(file.path) as opened:
            for number in range(first, len(archive.keys)):
                yield archive.row(number, schema, opened)

    def _check(self, file: FileStamp, first_keys: dict[str, str]) -> None:
        """Raise `SchemaError` if the archive has a file extension that is not a column, unless the user selected the columns.

        `first_keys` maps each file extension of the archive to the key of the first row with such a file.
        """
        if self.columns:
            return
        known = [name for name in self.whole_schema().names if name != _KEY]
        for extension, key in first_keys.items():
            if extension not in known:
                raise SchemaError(
                    f"A file has an extension missing from the first rows: got {f'{key}.{extension}'!r}, but the columns are "
                    f"{listed(known)}, in {file.path}.{suggest(extension, known)} Declare the needed extensions with "
                    f"columns={[*known, extension]!r:.200}. Other extensions are then dropped."
                )


@frozen(eq=False)
class _Archive:
    """Index of the files in an uncompressed archive."""

    file: FileStamp
    keys: tuple[str, ...]
    # Maps each extension to the byte offsets and sizes of its files, int64[rows, 2]. Missing files have the value -1.
    spans: dict[str, NDArray[np.int64]]

    def firsts(self) -> dict[str, str]:
        """Map each file extension to the key of the first row that has a file with this extension."""
        return {name: self.keys[int(np.argmax(spans[:, 1] >= 0))] for name, spans in self.spans.items()}

    def row(self, number: int, schema: Schema, opened: BinaryIO | FileIO) -> _Row:
        wanted = [name for name in schema.names if name != _KEY and name in self.spans]
        spans = {name: self.spans[name][number].tolist() for name in wanted}
        key = self.keys[number]
        return key, {name: self._bytes(opened, start, size, f"{key}.{name}") for name, (start, size) in spans.items() if size >= 0}

    def _bytes(self, opened: BinaryIO | FileIO, start: int, size: int, name: str) -> bytes:
        opened.seek(start)
        data = opened.read(size) or b""
        if len(data) < size:
            raise damaged_tar(f"got {len(data):,} of {size:,} bytes of {name!r}", self.file)
        return data


@lru_cache(maxsize=16)
def _read_archive(file: FileStamp) -> _Archive:
    """Build the index of an uncompressed archive from its headers."""
    keys: list[str] = []
    spans: dict[str, list[tuple[int, int, int]]] = {}
    with open_plain(file.path) as opened, closing(tar_members(opened, "r:", file, frozenset())) as members:
        for row, (key, files) in enumerate(_grouped(((name, member) for name, member, _ in members), file)):
            keys.append(key)
            for extension, member in files.items():
                end = member.offset_data + member.size
                if end > file.size:
                    raise damaged_tar(f"the archive has {file.size:,} bytes, but {member.name!r} ends at byte {end:,}", file)
                spans.setdefault(extension, []).append((row, member.offset_data, member.size))
    return _Archive(file, tuple(keys), {name: _table(entries, len(keys)) for name, entries in spans.items()})


def _table(entries: list[tuple[int, int, int]], count: int) -> NDArray[np.int64]:
    rows = np.array(entries, np.int64)
    out = np.full((count, 2), -1, np.int64)
    out[rows[:, 0]] = rows[:, 1:]
    return out


@lru_cache(maxsize=64)
def _first_extensions(files: tuple[FileStamp, ...]) -> tuple[str, ...]:
    """Return the file extensions that occur in the first rows of the first non-empty archive, in order of appearance."""
    for file in files:
        if _is_read_in_order(file):
            with closing(_stream(file, frozenset())) as rows:
                extensions = [extension for _, row in islice(rows, SAMPLE_ROWS) for extension in row]
        else:
            extensions = [name for name, spans in _read_archive(file).spans.items() if (spans[:SAMPLE_ROWS, 1] >= 0).any()]
        reserved = next((name for name in extensions if name in (_KEY, *HIDDEN)), None)
        if reserved is not None:
            raise SchemaError(
                f"A file extension is a reserved column name: got {reserved!r}, in {file.path}. Choose other extensions with columns=."
            )
        if extensions:
            return tuple(dict.fromkeys(extensions))
    return ()


def _is_read_in_order(file: FileStamp) -> bool:
    return is_remote(file.path) or packing(file.path) is not None


def _stream(file: FileStamp, wanted: frozenset[str]) -> _Rows:
    """Yield the rows of an archive in order. Only files with an extension in `wanted` are read."""
    with closing(open_bytes(file.path)) as opened, closing(tar_members(opened, "r|", file, wanted)) as members:
        yield from _grouped(((name, data) for name, _, data in members), file)


def _grouped(members: Iterable[tuple[tuple[str, str], A]], file: FileStamp) -> Iterator[tuple[str, dict[str, A]]]:
    """Combine neighbouring files with the same key into one row. Raise `DataError` if the key appears again later."""
    row: tuple[str, dict[str, A]] | None = None
    seen: set[str] = set()
    for (key, extension), value in members:
        if row is None or row[0] != key:
            if row is not None:
                yield row
            if key in seen:
                raise DataError(
                    f"The files of a row are not neighbours in a tar archive: got {f'{key}.{extension}'!r} after the files of another "
                    f"row, in {file.path}. Write the archive again with tar --sort=name."
                )
            seen.add(key)
            row = (key, {})
        if extension in row[1]:
            raise DataError(
                f"A tar archive has a duplicate file: {f'{key}.{extension}'!r}, in {file.path}. Write the archive again without it."
            )
        row[1][extension] = value
    if row is not None:
        yield row


def _chunks(rows: Iterable[_Row], schema: Schema) -> Iterator[tuple[RecordBatch, bool]]:
    """Group the rows of an archive into chunks. Yield (chunk, True) for the last chunk, and (chunk, False) for all other chunks."""
    waiting: list[_Row] = []
    size = 0
    for row in rows:
        if len(waiting) == _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield _to_chunk(waiting, schema), False
            waiting, size = [], 0
        waiting.append(row)
        size += sum(len(data or b"") for data in row[1].values())
    if waiting:
        yield _to_chunk(waiting, schema), True


def _to_chunk(rows: Sequence[_Row], schema: Schema) -> RecordBatch:
    columns = [
        pa.array([key if name == _KEY else files.get(name) for key, files in rows], kind)
        for name, kind in zip(schema.names, schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
