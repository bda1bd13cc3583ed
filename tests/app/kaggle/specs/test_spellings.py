"""The laws of spellings: what is written fits, and the narrowest spelling that fits is found."""

from typing import get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mlxfp.app.kaggle.specs.spellings import CellSpelling, Spelling, find_spelling

_TRUTHS = [("True", "False"), ("true", "false"), ("TRUE", "FALSE")]
_CELLS = {
    "integer": st.integers().map(str),
    "boolean": st.sampled_from(_TRUTHS[0]),
    "number": st.floats(allow_nan=False, allow_infinity=False).map(str),
    "text": st.text(),
}


@given(data=st.data(), name=st.sampled_from(get_args(Spelling)))
def test_the_narrowest_spelling_that_all_cells_fit_is_found(data: st.DataObject, name: Spelling):
    cells = data.draw(st.lists(_CELLS[name], min_size=1))
    found = find_spelling(cells)
    order = get_args(Spelling)
    assert all(map(found.fits, cells))
    assert order.index(found.name) <= order.index(name)
    for narrower in order[: order.index(found.name)]:
        assert not all(map(CellSpelling(narrower).fits, cells))


@given(value=st.integers(-9, 9) | st.booleans() | st.floats(allow_nan=False, allow_infinity=False), truths=st.sampled_from(_TRUTHS))
def test_what_is_written_fits_where_the_spelling_can_say_it(value: float, truths: tuple[str, str]):
    assert CellSpelling("number").fits(CellSpelling("number").write(value))
    assert float(CellSpelling("number").write(value)) == value
    assert CellSpelling("integer").fits(CellSpelling("integer").write(value)) == (float(value).is_integer())
    assert CellSpelling("boolean", truths).fits(CellSpelling("boolean", truths).write(value)) == (value in (0, 1))


@given(name=st.text(min_size=1), spelling=st.sampled_from(get_args(Spelling)))
def test_names_of_classes_stay_as_they_are_if_they_fit(name: str, spelling: Spelling):
    assume(CellSpelling(spelling).fits(name))
    assert CellSpelling(spelling).write(name) == name


@pytest.mark.parametrize(
    ("cells", "name", "truths"),
    [(["TRUE"], "boolean", _TRUTHS[2]), (["true", "False"], "text", _TRUTHS[0]), (["1", ""], "text", _TRUTHS[0]), ([], "text", _TRUTHS[0])],
)
def test_truth_values_are_spelled_as_in_the_cells(cells: list[str], name: Spelling, truths: tuple[str, str]):
    assert find_spelling(cells) == CellSpelling(name, truths)
    assert find_spelling(cells, "boolean") == CellSpelling("boolean", truths)


@pytest.mark.parametrize("cell", ["1_0", "1e999", "nan", "inf", "٣", "0x1", "", "1,5"])
def test_odd_cells_are_no_numbers(cell: str):
    assert not CellSpelling("number").fits(cell)
    assert not CellSpelling("integer").fits(cell)
