"""What may make the score of a run other than it looks."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from mlxfp.data.rows.columns import select_columns
from mlxfp.kaggle.specs.tables import to_table
from mlxfp.runs.plans import Plan

_FOLD = "__fold__"  # beside whatever columns there are


def doubts(made: Plan) -> Iterator[str]:
    """Say what may make a score other than it looks, and is no mistake for sure."""
    if made.problem.mismatches:
        yield made.problem.mismatches
    first = made.folds.assignments[0]
    if made.folds.forward:
        yield (
            f"Folds go forward in time, by {made.problem.spec.time!r}: the first {int((first < 0).sum()):,} rows are only trained on. "
            "For folds at random: validation.method=kfold."
        )
    names = [column.name for column in made.problem.spec.columns]
    table = to_table(select_columns(names)(made.rows)).append_column(_FOLD, pa.array(first))
    kinds = table.group_by(names).aggregate([(_FOLD, "count_distinct"), (_FOLD, "count")])
    counts = kinds.column(f"{_FOLD}_count").filter(pc.greater(kinds.column(f"{_FOLD}_count_distinct"), 1))
    if len(counts):
        yield (
            f"{pc.sum(counts).as_py():,} rows equal one in another fold, in all columns that a model sees: the score is too good if they "
            "are the same thing twice. A group column in the spec keeps such rows together."
        )
