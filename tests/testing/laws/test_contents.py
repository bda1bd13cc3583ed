"""Laws about the contents of a batch: messages for arguments that fit no column of the examples."""

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError
from mlxfp.testing import laws

COLLATOR = fp.collators.text(pad_id=0, carry=["size"])
ROWS = st.lists(st.builds(dict, input_ids=st.lists(st.integers(1, 9)), size=st.integers(1, 9)), min_size=1)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (
            {"masks": {"attention_mask": "nota"}},
            r"mask 'attention_mask' reads the column 'nota', which is missing in example 0\. Name one of .*examples: 'input_ids', 'size'\.",
        ),
        ({"masks": {"attention_mask": "input_id"}}, r"missing in example 0\. Did you mean 'input_ids'\? Name one"),
        ({"masks": {"attention_mask": "size"}}, r"needs a list in 'size', got \d in example 0\. Name a column with lists: 'input_ids'\."),
        ({"labels": {"input_ids": ("nota", 1, -100)}}, r"labels 'input_ids' reads the column 'nota', which is missing"),
        ({"carries": {"size": "nota"}}, r"array 'size' reads the column 'nota', which is missing"),
        (
            {"labels": {"labels": "t"}},
            r"labels must map the name of an array to \(token.*got 't' for 'labels'\. Write .*=\{'labels': \(\"input_ids\", 1, -100\)\}",
        ),
        ({"labels": {"labels": ("t", 1)}}, r"labels must map .*got \('t', 1\) for 'labels'\."),
    ],
)
def test_a_stated_content_with_a_wrong_column_names_the_columns(stated: Any, message: str):
    """Report a wrong column or entry in an argument that states the contents of a batch."""
    with pytest.raises(ArgumentError, match=message):
        laws.check(COLLATOR, examples=ROWS, **stated)


def test_a_mask_on_a_column_with_missing_lists_says_how_to_draw_no_missing_values():
    """Report a missing list in the column of a mask."""

    def mask(examples: Any) -> Any:
        return {"mask": np.ones((len(examples), 1), np.int32)}

    rows = st.lists(st.builds(dict, ids=st.sampled_from([[1], None])), min_size=8)
    message = r"mask 'mask' needs a list in 'ids', got None in example \d+\. .*nullable=False for the field 'ids' of schema=, or examples="
    with pytest.raises(ArgumentError, match=message):
        laws.check(mask, examples=rows, masks={"mask": "ids"})


def _with_mileage(dtype: Any, scale: float = 1, name: str = "mileage") -> Any:
    def collator(examples: Any) -> dict[str, Any]:
        with np.errstate(over="ignore"):
            return {name: (np.array([example["mileage"] for example in examples]) / scale).astype(dtype)}

    return collator


CARS = st.lists(st.builds(dict, mileage=st.integers(100_000, 400_000)), min_size=1, max_size=3)


@pytest.mark.parametrize("name", ["mileage", "0"])
def test_a_float16_array_of_large_numbers_breaks_the_default_laws(name: str):
    """The array of the column has the name of the column, or contains the values 1 and 2 of the column."""
    collator = _with_mileage(np.float16, name=name)
    message = (
        rf"'{name}' of .*collator holds the numbers of 'mileage', but its dtype float16 cannot hold 100000: \[100000\] became inf\. "
        "Use a wider dtype"
    )
    with pytest.raises(AssertionError, match=message):
        laws.assert_keeps_integers(collator, [{"mileage": 100_000}])
    with pytest.raises(AssertionError, match=message):
        laws.check(collator, examples=CARS)


@pytest.mark.parametrize(
    ("collator", "rows"),
    [
        (_with_mileage(np.float32), CARS),
        (_with_mileage(np.float16, scale=400_000), CARS),
        (_with_mileage(np.float32, scale=400_000), CARS),
        (_with_mileage(np.float16), st.just([{"mileage": float("inf")}, {"mileage": float("nan")}, {"mileage": 1.1}])),
    ],
    ids=["float32", "scaled float16", "scaled float32", "infinite numbers"],
)
def test_a_float_array_that_can_hold_its_numbers_breaks_no_default_law(collator: Any, rows: Any):
    """Scaled numbers fit in float16, and infinite numbers of a column stay infinite."""
    laws.check(collator, examples=rows)


@pytest.mark.parametrize(("number", "became"), [(100_000, "inf"), (2049, "2048.0"), (100_000.0, "inf"), (-100_000.5, "-inf")], ids=str)
def test_an_array_that_overflows_or_rounds_an_integer_does_not_carry_the_column(number: float, became: str):
    """The message contains the number, the number in the array, and the remedy."""
    with pytest.raises(AssertionError) as caught:
        laws.assert_carries(_with_mileage(np.float16), [{"mileage": number}], array="mileage", column="mileage")
    assert str(caught.value).partition(" holds ")[2] == (
        f"'mileage' of example 0, {number}, but it is {became}, because the dtype float16 cannot hold the value. Use a wider dtype"
    )


@pytest.mark.parametrize("number", [2048, 0.1, float("inf"), float("nan"), 65_504])
def test_an_array_that_rounds_fractions_carries_the_column(number: float):
    """Fractions are rounded to float16."""
    laws.assert_carries(_with_mileage(np.float16), [{"mileage": number}], array="mileage", column="mileage")


def test_text_labels_are_not_compared_with_class_numbers():
    collator = fp.collators.text(pad_id=0, label="churn", classes=["No", "Yes"])
    with pytest.raises(AssertionError) as caught:
        laws.assert_carries(collator, [{"input_ids": [1], "churn": "No"}], array="labels", column="churn")
    assert str(caught.value) == (
        "'labels' of text(pad_id=0, label='churn', classes=('No', 'Yes')) holds 'churn' of example 0, No, but it is 0. carries= compares "
        "the array with the text of the column. Name a column of numbers, or remove 'labels' from carries="
    )
