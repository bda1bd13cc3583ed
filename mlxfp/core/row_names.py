"""Which row an error is about, in words."""

from mlxfp.core.chunks import LEAF_BITS, RecordBatch, source_rows


def row_name(number: int) -> str:
    """Write a number of `__row__` for a reader: the row in its source and, where datasets are joined, which source that is.

    >>> row_name(7), row_name((2 << LEAF_BITS) + 7)
    ('7', '7 of joined source 2')
    """
    leaf, row = divmod(int(number), 1 << LEAF_BITS)
    return f"{row} of joined source {leaf}" if leaf > 0 else f"{row}"


def row_at(chunk: RecordBatch, place: int, *, of: str = "chunk") -> str:
    """Name the row at `place` of a chunk: by its row in the source, or where that is not known by its place in `of`.

    >>> import pyarrow as pa
    >>> row_at(pa.record_batch({"x": [5, 6]}), 1), row_at(pa.record_batch({"x": [5, 6], "__row__": [7, 8]}), 1)
    ('row 1 of the chunk', 'source row 8')
    """
    row = int(source_rows(chunk)[place])
    return f"source row {row_name(row)}" if row >= 0 else f"row {place} of the {of}"
