"""Warnings before a run trains: what may make its score misleading."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from mlxfp.data.rows.columns import select_columns
from mlxfp.kaggle.specs.tables import to_table
from mlxfp.runs.plans import Plan

_FOLD = "__fold__"  # a name that no column of data has


def run_warnings(made: Plan) -> Iterator[str]:
    """Return what may make a score misleading, though it need not be a mistake."""
    if made.data.mismatches:
        yield made.data.mismatches
    first = made.folds.assignments[0]
    if made.folds.forward:
        yield (
            f"Folds go forward in time, by {made.data.spec.time!r}: the first {int((first < 0).sum()):,} rows are only trained on. "
            "For random folds: validation.method=kfold."
        )
    names = [column.name for column in made.data.spec.columns]
    table = to_table(select_columns(names)(made.rows)).append_column(_FOLD, pa.array(first))
    kinds = table.group_by(names).aggregate([(_FOLD, "count_distinct"), (_FOLD, "count")])
    counts = kinds.column(f"{_FOLD}_count").filter(pc.greater(kinds.column(f"{_FOLD}_count_distinct"), 1))
    if len(counts):
        yield (
            f"{pc.sum(counts).as_py():,} rows are equal to a row in another fold, in all columns that a model sees: the score is too good "
            "if these are duplicates. A group column in the spec keeps such rows together."
        )
