"""The laws of column kinds: each holds, recognizes, reads and writes the cells that it synthesizes."""

from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.app.kaggle.specs.column_kinds import COLUMN_KINDS, ColumnType


def test_every_column_type_has_one_kind():
    assert tuple(COLUMN_KINDS) == get_args(ColumnType)
    assert all(COLUMN_KINDS[name].name == name for name in COLUMN_KINDS)


@pytest.mark.parametrize("name", COLUMN_KINDS)
@given(seed=st.integers(0, 999), codes=st.sampled_from([(), ("a", "b", "c d")]))
def test_synthetic_cells_are_held_and_recognized_by_their_kind(name: ColumnType, seed: int, codes: tuple[str, ...]):
    kind = COLUMN_KINDS[name]
    made = kind.synthesize(codes, 60, np.random.default_rng(seed))
    cells = pa.chunked_array([pa.array(made.cells, pa.string())])
    assert (len(cells), made.signal.shape, cells.null_count) == (60, (60,), 0)
    assert len(kind.unfit(cells)) == 0
    assert [each.name for each in COLUMN_KINDS.values() if each.recognizes(cells, cells.slice(0, 0))][-1] == name
    assert not kind.has_names or not codes or set(made.cells) <= set(codes)


@pytest.mark.parametrize("name", COLUMN_KINDS)
def test_a_column_of_any_kind_goes_from_a_file_to_text(tmp_path: Path, name: ColumnType):
    kind = COLUMN_KINDS[name]
    cells = kind.synthesize((), 60, np.random.default_rng(0)).cells
    (tmp_path / "train.csv").write_text("id,x,y\n" + "".join(f"{place},{cell},{place / 7}\n" for place, cell in enumerate(cells)))
    columns = [fp.kaggle.ColumnSpec(name="x", type=name)]
    spec = fp.kaggle.DatasetSpec(
        name="d", kind="regression", train=fp.kaggle.FileSpec(name="train.csv"), id="id", target=["y"], columns=columns, metric="mae"
    )
    fp.kaggle.check_spec(spec, tmp_path)
    assert fp.kaggle.infer_spec(tmp_path, target="y").columns == spec.columns
    rows = fp.kaggle.read_part(spec, tmp_path)
    assert fp.to_table(rows).schema.field("x").type == kind.arrow_type
    lead = kind.phrase.format(title="x", Title="X", verb="is")
    assert all(
        f"{lead}{cell}" in row["text"]
        for cell, row in zip(cells, fp.pipe(rows, fp.kaggle.fit_row_to_text(spec, rows, numbers="raw")), strict=True)
        if not kind.is_number
    )
    assert all(lead in row["text"] for row in fp.pipe(rows, fp.kaggle.fit_row_to_text(spec, rows)))
