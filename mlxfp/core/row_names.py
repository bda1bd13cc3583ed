"""Which row an error is about, in words."""

from mlxfp.core.chunks import LEAF_BITS


def row_name(number: int) -> str:
    """Write a number of `__row__` for a reader: the row in its source and, where datasets are joined, which source that is.

    >>> row_name(7), row_name((2 << LEAF_BITS) + 7)
    ('7', '7 of joined source 2')
    """
    leaf, row = divmod(int(number), 1 << LEAF_BITS)
    return f"{row} of joined source {leaf}" if leaf > 0 else f"{row}"
