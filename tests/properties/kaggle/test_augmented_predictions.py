import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError


def length_of_text(rows):
    """Predict from the place of the first word, which another order changes."""
    return np.array([text.index("first") for text in fp.kaggle.column_values(rows, "text")], float)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_predictions_are_averaged_over_views(seeds: list[int]):
    rows = fp.from_table({"a": ["first"] * 5, "b": ["x", "yy", "zzz", "u", "v"]})
    views = [fp.template("{a}, {b}.", seed=seed) for seed in seeds]
    found = fp.kaggle.test_time_augmentation(length_of_text, views)(rows)
    assert found == pytest.approx(np.mean([length_of_text(view(rows)) for view in views], axis=0))


def test_views_keep_the_rows():
    rows = fp.from_table({"x": [1.0, 2.0]})
    model = fp.kaggle.test_time_augmentation(lambda rows: fp.kaggle.column_values(rows, "x"), [fp.map(lambda row: row), fp.take(1)])
    with pytest.raises(ArgumentError, match=r"must keep all rows, got predictions with the shapes \[\[2\], \[1\]\]"):
        model(rows)


def test_views_are_functions_and_there_are_some():
    with pytest.raises(ArgumentError, match="needs at least one view, got none"):
        fp.kaggle.test_time_augmentation(length_of_text, [])
    with pytest.raises(ArgumentTypeError, match=r"views\[0\] must be a function"):
        fp.kaggle.test_time_augmentation(length_of_text, ["a"])
