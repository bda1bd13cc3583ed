"""Reading rows of keys and values, and errors for other text."""

import pytest

from mlxfp.app.kaggle.rows.key_values import read_key_values
from mlxfp.support.errors import DataError, UnknownNameError
from tests.app.kaggle.drawing import SHIP


def test_values_with_marks_in_them_read_back():
    assert read_key_values("name: a\\; b: c\\\\; age: 3;", SHIP) == {"Name": "a; b: c\\", "Age": "3"}


@pytest.mark.parametrize(("text", "place"), [("age", 0), ("age: 3", 0), ("age: 3; name", 8), ("age: 3;name: x;", 0), ("age: 3\\;", 0)])
def test_text_that_is_no_row_is_refused_with_its_place(text: str, place: int):
    with pytest.raises(DataError, match=f"must have the form 'age: 22; sex: female;', got .* at character {place}"):
        read_key_values(text, SHIP)


def test_a_title_that_no_column_has_is_refused():
    with pytest.raises(UnknownNameError, match="Did you mean 'age'"):
        read_key_values("agee: 3;", SHIP)
