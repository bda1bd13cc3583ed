"""A small competition, and rows of it as hypothesis draws them."""

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import mlxfp as fp
from tests.app.kaggle.drawing import tables_for

COLUMNS = (
    fp.kaggle.ColumnSpec(name="Name", type="text"),
    fp.kaggle.ColumnSpec(name="Port", type="categorical", values={"S": "Southampton", "C": "Cherbourg"}),
    fp.kaggle.ColumnSpec(name="Age", type="numerical"),
    fp.kaggle.ColumnSpec(name="Fare", type="numerical", absent=["0"]),
)

_TARGETS: dict[str, dict[str, Any]] = {
    "binary": {"target": ["y"], "classes": ["no", "yes"], "metric": "accuracy"},
    "multiclass": {"target": ["y"], "classes": ["low", "mid", "high"], "metric": "log_loss"},
    "multilabel": {"target": ["y", "z"], "classes": ["0", "1"], "metric": "roc_auc"},
    "regression": {"target": ["y"], "metric": "rmse"},
}


def spec_of(kind: str = "binary", **changes: Any) -> fp.kaggle.DatasetSpec:
    """Make a spec with columns of every type."""
    about = {"name": "ships", "kind": kind, "train": fp.kaggle.FileSpec(name="train.csv"), "columns": list(COLUMNS), **_TARGETS[kind]}
    return fp.kaggle.DatasetSpec(**(about | changes))


@st.composite
def tables(draw: st.DrawFn, spec: fp.kaggle.DatasetSpec, *, min_rows: int = 1) -> pa.Table:
    """Draw rows with targets that are numbers."""
    table = draw(tables_for(spec, min_rows=min_rows))
    most = len(spec.classes) - 1 if spec.classes else 9
    targets = st.lists(st.integers(0, most), min_size=table.num_rows, max_size=table.num_rows)
    for name in spec.target:
        table = table.append_column(name, pa.array(draw(targets), pa.int64()))
    return table


def first_of(table: pa.Table, others: pa.Table) -> fp.Dataset[Any]:
    """Take the rows of a table, as they are when others are in the same file."""
    return fp.select(range(table.num_rows))(fp.from_table(pa.concat_tables([table, others])))


def rows_of(kind: str, count: int = 12) -> fp.Dataset[Any]:
    """Make rows whose targets can be told from each of their columns, and are numbers."""
    most = len(spec_of(kind).classes) or 5
    return fp.from_table(
        {
            "Name": [f"{'ab'[place % 2]} ship" for place in range(count)],
            "Port": ["SCQ"[place % most] if place % most < 3 else None for place in range(count)],
            "Age": [float(place % most) for place in range(count)],
            "Fare": [None if place % 4 == 0 else float(place % 3) for place in range(count)],
            "y": [place % most if kind != "regression" else 10.0 * (place % most) for place in range(count)],
            "z": [place % 2 if kind != "regression" else float(place % 3) for place in range(count)],
        }
    )
