"""Reader of plain text files. A row is a line or a whole file."""

from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.chunks import Example, RecordBatch, Schema
from mlxfp.core.datasets import Dataset
from mlxfp.data.sources.files import Paths
from mlxfp.data.sources.line_files import LineSource
from mlxfp.data.sources.records.line_blocks import Opening
from mlxfp.data.sources.remote_files import FileStamp
from mlxfp.support.checks import check_choice, explain_call
from mlxfp.support.file_formats import with_compressions

_NAME = "text"


@explain_call
def read_text(path: Paths, *, by: Literal["line", "file"] = "line") -> Dataset[Example]:
    r"""Read text files lazily into a column `text`.

    `path` is a path, several paths, a pattern such as `"books/**/*.txt"`, or a folder. Compression (gzip, zstd, zip) is detected by
    suffix. Remote files need the extra `remote` (fsspec) and an address such as `s3://bucket/a.txt` or `https://...`.

    A row is a line without its \n or \r\n. Blank lines are rows too. A newline at the end of a file does not begin another line. With
    `by="file"`, a row is a whole file of at most 256 MB. A byte order mark is dropped.

    With `by="line"`, files of any size need about one block of at most 4 MB in memory, and a resumed run starts reading at the beginning
    of a block. Reading raises `DataError` with file and line for text that is not UTF-8, and `MissingFileError` if no file matches a path.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("To be, or not to be,\nthat is the question.\n")
    ...     list(read_text(Path(folder, "a.txt")))
    [{'text': 'To be, or not to be,'}, {'text': 'that is the question.'}]

    See also: `read_jsonl` for text with labels.
    """
    check_choice(("line", "file"), by=by)
    return Dataset(_ReadText(path, by))


@frozen(repr=False)
class _ReadText(LineSource):
    by: str = "line"
    suffixes = with_compressions(".txt")

    def cut(self, data: bytes) -> int:
        return super().cut(data) if self.by == "line" else 0

    def record_ends(self, data: bytes) -> NDArray[np.int64]:
        return super().record_ends(data) if self.by == "line" else np.empty(0, np.int64)

    def parse(self, data: bytes, opening: Opening, schema: Schema | None) -> RecordBatch:
        texts = _split_lines(data) if self.by == "line" else pa.array([data.decode()])
        return pa.RecordBatch.from_arrays([texts], names=[_NAME])

    def inferred(self, files: tuple[FileStamp, ...]) -> tuple[Schema, str]:
        return pa.schema([(_NAME, pa.string())]), files[0].path

    def length(self) -> int | None:
        return len(self.files()) if self.by == "file" else None


def _split_lines(data: bytes) -> pa.Array:
    if not data:
        return pa.array([], pa.string())
    text = data.replace(b"\r\n", b"\n") if b"\r" in data else data
    whole = pa.array([text.removesuffix(b"\n")], pa.binary()).cast(pa.string())
    return pc.split_pattern(whole, "\n").flatten()
