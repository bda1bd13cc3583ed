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
