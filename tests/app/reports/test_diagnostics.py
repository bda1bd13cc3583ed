"""Rows with the largest errors."""

import numpy as np
import pytest

import mlxfp as fp
from mlxfp.app.kaggle.validation.folds import custom
from mlxfp.app.kaggle.validation.out_of_fold import OutOfFold
from mlxfp.app.kaggle.validation.scoring import METRICS
from mlxfp.app.reports.diagnostics import mistakes
from mlxfp.app.reports.reading import Scored


@pytest.mark.parametrize(("metric", "worst"), [("rmse", "b"), ("rmsle", "a")])
def test_the_largest_errors_are_those_of_the_metric(metric: str, worst: str):
    about = {"train": fp.kaggle.FileSpec(name="a.csv"), "target": ["rent"], "kind": "regression"}
    spec = fp.kaggle.DatasetSpec(name="rents", columns=[fp.kaggle.ColumnSpec(name="x", type="numerical")], metric=metric, **about)
    oof = OutOfFold(custom([0, 1, 0]), np.array([0.0, 2000.0, 900.0]), np.array([[800.0, 1100.0, 901.0]]))
    found = mistakes(Scored(spec, METRICS[metric], ("a", "b", "c"), oof, None), 3)
    assert found[0].id == worst
    assert found[-1].id == "c"
