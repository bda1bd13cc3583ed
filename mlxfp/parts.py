"""Tools for authors of sources and stages: base classes, properties (traits), and functions that change chunks (groups of rows).

Chunks have two hidden columns. `__row__`, int64, is the index of the row in the source. `__key__`, uint64, is the hash of epoch and row.
"""

from mlxfp.core.chunks import Example, one_chunk, row_keys, set_column, set_field, source_rows
from mlxfp.core.datasets import Combinator, Wrapper
from mlxfp.core.execution import read_all
from mlxfp.core.nodes import flat_parts
from mlxfp.core.sources import SourceTraits
from mlxfp.core.stages import Traits
from mlxfp.support.randomness import fold_into_rows

__all__ = [
    "Combinator",
    "Example",
    "SourceTraits",
    "Traits",
    "Wrapper",
    "flat_parts",
    "fold_into_rows",
    "one_chunk",
    "read_all",
    "row_keys",
    "set_column",
    "set_field",
    "source_rows",
]


def __dir__() -> list[str]:
    return __all__
