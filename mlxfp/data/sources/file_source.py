"""The source behind every file format: which files it reads, and how a position names a place in one of them."""

from typing import ClassVar

import attrs
import pyarrow as pa
from attrs import field, frozen

from mlxfp.core.chunks import Schema
from mlxfp.core.errors import CursorError
from mlxfp.core.sources import Position, Source
from mlxfp.data.sources.files import FileStamp, as_paths, find_files, show_call


@frozen(repr=False)
class FileSource(Source):
    """Files of one format, read one after the other. Positions are those that `place` makes."""

    paths: tuple[str, ...] = field(converter=as_paths, repr=False)
    kept: tuple[str, ...] | None = field(default=None, kw_only=True, repr=False)  # the columns that the pipeline needs; None: all
    suffixes: ClassVar[tuple[str, ...]]  # of the files to read in a folder

    def files(self) -> tuple[FileStamp, ...]:
        """Find the files."""
        return find_files(self.paths, self.suffixes)

    def select(self, schema: Schema) -> Schema:
        """Leave out the columns that the pipeline does not need."""
        return schema if self.kept is None else pa.schema([schema.field(name) for name in self.kept])

    def file_of(self, position: Position) -> str | None:
        """Return the path of the file, out of several, that a position is in."""
        files = self.files()
        number, _, _ = find_place(files, position)
        return files[number].path if len(files) > 1 and number < len(files) else None

    def version(self) -> tuple[tuple[str, int, int], ...]:
        """Return path, size and time of every file."""
        return tuple(attrs.astuple(file) for file in self.files())

    def __repr__(self) -> str:
        return show_call(super().__repr__(), self.paths)


def place(files: tuple[FileStamp, ...], number: int, at: int, rest: int) -> Position:
    """Make the position (`at`, `rest`) in file `number`; what they count is up to the format.

    The position also holds the size of the file and the number of files, so that `find_place` notices when these have changed.
    """
    return number, at, rest, files[number].size if number < len(files) else 0, len(files)


def find_place(files: tuple[FileStamp, ...], position: Position) -> tuple[int, int, int]:
    """Return (number, at, rest) of a position; raise `CursorError` if the files have changed since the position was made."""
    if position is None:
        return 0, 0, 0
    match position:
        case (int(number), int(at), int(rest), int(size), int(count)) if min(number, at, rest) >= 0 and number <= count:
            pass
        case _:
            raise CursorError(f"The cursor has no position in files: {position!r:.80}. Use what Cursor.to_bytes() returned.")
    if count != len(files):
        raise CursorError(
            f"The files have changed since the cursor was made: there were {count}, now {len(files)}. Restore them, or start over."
        )
    if number < count and files[number].size != size:
        now = files[number]
        raise CursorError(
            f"A file has changed since the cursor was made: it had {size:,} bytes, now {now.size:,}: {now.path}. Restore it, or start over."
        )
    return number, at, rest
