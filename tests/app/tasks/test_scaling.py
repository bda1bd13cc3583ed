"""Scaled numbers know their training rows only, and are small whatever comes."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.app.tasks.scaling import Scale, Scales, fit_scales
from mlxfp.support.errors import DataError, SchemaError
from mlxfp.testing import laws
from tests.app.tasks.drawing import first_of, spec_of, tables

FLOATS = st.lists(st.none() | st.floats(), min_size=1, max_size=9)


def scales_of(values, **about) -> Scales:
    column = fp.kaggle.ColumnSpec(name="x", type="numerical", **about)
    return fit_scales(spec_of("regression", columns=[column]), fp.from_table({"x": pa.array(values, pa.float64())}))


def written(scales: Scales, values) -> list[list[float]]:
    return fp.to_table(scales(fp.from_table({"x": pa.array(values, pa.float64())})))["numbers"].to_pylist()


@given(train=FLOATS, others=FLOATS, absent=st.booleans())
def test_numbers_are_finite_and_at_most_5_whatever_comes(train, others, absent: bool):
    scales = scales_of(train, absent=["0"] if absent else [])
    numbers = np.array(written(scales, [*train, *others]))
    assert numbers.shape == (len(train) + len(others), scales.count)
    assert np.abs(numbers).max() <= 5


@given(data=st.data(), spec=st.just(spec_of()))
def test_scales_know_their_training_rows_only(data, spec):
    train, some, others = (data.draw(tables(spec)) for _ in range(3))
    scales = fit_scales(spec, first_of(train, some))
    assert scales == fit_scales(spec, first_of(train, others)) == fit_scales(spec, fp.from_table(train))
    alone = fp.to_table(scales(fp.from_table(train)))["numbers"].to_pylist()
    assert fp.to_table(scales(fp.from_table(pa.concat_tables([train, others]))))["numbers"].to_pylist()[: train.num_rows] == alone


def test_scales_are_a_lawful_stage():
    scales = Scales((Scale("x", 1.0, 2.0, 0.5, log=False, flag=True, absent=(0.0,)), Scale("y", 0.0, 1.0, 0.5, log=True, flag=False)))
    schema = pa.schema({"x": pa.float64(), "y": pa.int64()})
    laws.check(scales, schema=schema, ahead=0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9))
def test_numbers_of_ordinary_columns_have_mean_0_and_spread_1(values):
    scale = scales_of(values).scales[0]
    numbers = (np.sign(values) * np.log1p(np.abs(values)) if scale.log else np.array(values)) - scale.mean
    assert np.abs(numbers.mean()) <= 1e-9 * np.abs(values).max()
    if scale.sd != 1:
        assert (numbers / scale.sd).std() == pytest.approx(1)


@pytest.mark.parametrize(
    ("train", "about", "values", "numbers"),
    [
        pytest.param([1, 3], {}, [1, 2, 3], [[-1], [0], [1]], id="plain"),
        pytest.param([1, 3, None], {}, [3, None], [[1, 0], [0, 1]], id="missing"),
        pytest.param([1, 3], {}, [None, np.nan], [[0], [0]], id="missing in other rows only"),
        pytest.param([1, 3, np.inf], {}, [3, np.inf, -np.inf], [[1], [5], [-5]], id="infinite"),
        pytest.param([0.1] * 3, {}, [0.1, 0.6, 99, None], [[0], [0.5], [5], [0]], id="constant, but for rounding"),
        pytest.param([0, 1e-100], {}, [0, 1e60, -1e300], [[-1], [5], [-5]], id="tiny, and huge in other rows"),
        pytest.param([None, np.nan], {}, [None, 2, -99], [[0, 1], [2, 0], [-5, 0]], id="nothing there"),
        pytest.param([1, 3, -999, None], {"absent": ["-999"]}, [3, -999, None], [[1, 0], [0, 1], [0, 1]], id="absent"),
        pytest.param([0, 0], {"absent": ["0"]}, [0, 1], [[0, 1], [1, 0]], id="all absent"),
    ],
)
def test_columns_of_every_sort_are_scaled(train, about, values, numbers):
    assert written(scales_of(train, **about), values) == [pytest.approx(row) for row in numbers]


def test_skewed_columns_are_scaled_by_their_logarithms():
    skewed, below = [0, 1, 2, 3, 5, 8, 1000], [-1, 1, 2, 3, 5, 8, 1000]
    assert [scales_of(values).scales[0].log for values in (skewed, below)] == [True, False]
    numbers = [row[0] for row in written(scales_of(skewed), [*skewed, -3])]
    assert numbers[:-1] == sorted(numbers[:-1])
    assert numbers[-1] < numbers[0]
    assert max(map(abs, numbers)) < 3


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0, 1], pa.int64()),
        pa.array([0, 1], pa.float32()),
        pa.array([False, True]),
        pa.array([0, 1], pa.int8()).cast(pa.decimal128(5, 2)),
        pa.array([0, 1]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_numbers_of_all_types_are_scaled(column):
    rows = fp.from_table(pa.table({"x": column}))
    scales = fit_scales(spec_of("regression", columns=[fp.kaggle.ColumnSpec(name="x", type="numerical")]), rows)
    assert fp.to_table(scales(rows))["numbers"].to_pylist() == [[-1.0], [1.0]]


def test_what_cannot_be_scaled_is_refused():
    with pytest.raises(
        SchemaError, match=r"The spec of 'ships' has no numerical columns\. Remove numeric \(model\.numeric\), or add numerical columns\."
    ):
        fit_scales(spec_of(columns=[]), fp.from_examples([{"x": 1}]))
    with pytest.raises(
        SchemaError, match=r"Column 'x' must hold numbers, got string\. Read the values as numbers, or correct the type in the spec"
    ):
        fit_scales(spec_of(columns=[fp.kaggle.ColumnSpec(name="x", type="numerical")]), fp.from_examples([{"x": "1"}]))
    with pytest.raises(DataError, match=r"Scaling of numerical columns needs training rows, but .* is empty\. Give at least one row\."):
        scales_of([])
    with pytest.raises(SchemaError, match="Column 'x' must hold numbers, got string"):
        list(scales_of([1.0])(fp.from_examples([{"x": "1"}])))
    with pytest.raises(SchemaError, match="needs the column 'x'"):
        list(scales_of([1.0])(fp.from_examples([{"y": 1.0}])))
