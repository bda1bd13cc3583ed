"""Row names for error messages."""

from typing import Any

import pyarrow as pa
from attrs import Factory, field, frozen

from mlxfp.core.chunks import LEAF_BITS, RecordBatch, source_rows
from mlxfp.core.nodes import Pipeline, leaves
from mlxfp.core.sources import Source
from mlxfp.support.arrow_types import is_text

PATH = "path"  # column of file paths from `read_images` and `read_audio`, for messages


@frozen
class Origin:
    """A row of a source. `row` is an index over all files of the source.

    `number` identifies the row in the whole pipeline, as in `Examples.rows`. For joined datasets, `number` also encodes the source.

    >>> import mlxfp as fp
    >>> locate(fp.from_examples([{"x": 1}, {"x": 2}]), 1)
    Origin(source=from_examples(2 rows), row=1)
    """

    source: Source
    row: int
    number: int = field(default=Factory(lambda self: self.row, takes_self=True), kw_only=True, eq=False, repr=False)


def locate(dataset: Pipeline[Any], number: int) -> Origin:
    """Return the source of a row, and the index of the row in this source. `number` is an element of `Examples.rows`."""
    leaf, row = divmod(int(number), 1 << LEAF_BITS)
    return Origin(list(leaves(dataset))[leaf], row, number=int(number))


def row_name(number: int) -> str:
    """Return the text for a value of `__row__`: the source row and, for joined datasets, the source."""
    leaf, row = divmod(int(number), 1 << LEAF_BITS)
    return f"{row} of joined source {leaf}" if leaf > 0 else f"{row}"


def row_at(chunk: RecordBatch, index: int, *, of: str = "chunk") -> str:
    """Return a name for row `index` of a chunk, such as "source row 7", for messages.

    If the source row is unknown, the name contains `index` and the argument `of`, such as "row 2 of the chunk".
    """
    row = int(source_rows(chunk)[index])
    return f"source row {row_name(row)}" if row >= 0 else f"row {index} of the {of}"


def file_of(chunk: RecordBatch, name: str, row: int) -> str:
    """Return the path of the file from which a value comes, in parentheses. Return an empty string if the file is unknown."""
    names, kinds = chunk.schema.names, chunk.schema.types
    paths = [chunk.column(PATH)] if PATH in names else []
    index = chunk.schema.get_field_index(name)
    if index >= 0 and pa.types.is_struct(kinds[index]) and kinds[index].get_field_index(PATH) >= 0:
        paths.append(chunk.column(index).field(PATH))  # Hugging Face datasets store the path of a file in a struct with the bytes
    files = [path[row].as_py() for path in paths if is_text(path.type)]
    return "".join(f" ({path})" for path in files if path)
