from typing import Any

import numpy as np
import pytest
from hypothesis import given

import mlxfp as fp
from mlxfp.testing.laws import assert_conserves_tokens
from mlxfp.testing.probing import from_chunks
from tests.data.token_rows import Chunks, chunkings, numbered

STAGES = [
    fp.pack(5),
    fp.pack(5, method="split"),
    fp.windows(4),
    fp.batch_by_tokens(20),
    fp.bucket_by_length([3, 12], size=2),
]


@pytest.mark.parametrize("stage", STAGES, ids=repr)
@given(chunkings())
def test_tokens_are_conserved(stage: Any, cut: tuple[Chunks, Chunks]):
    assert_conserves_tokens(stage, from_chunks(cut[0]), epoch=1)


@pytest.mark.parametrize(
    ("stage", "wrong"),
    [(fp.windows(4, drop_last=True), r"lost \{4: 1\}"), (fp.windows(4, stride=3), r"added \{3: 1\}")],
    ids=["lost", "doubled"],
)
def test_the_law_catches_tokens_that_are_lost_or_doubled(stage: Any, wrong: str):
    with pytest.raises(AssertionError, match=wrong):
        assert_conserves_tokens(stage, from_chunks(numbered([5]).to_batches()))


DOCUMENTS = [{"input_ids": [1, 2, 3]}, {"input_ids": [4, 5]}, {"input_ids": [6]}]


def joined(rows: Any) -> list[int]:
    return [token for row in rows for token in row["input_ids"]]


def in_blocks(rows: Any) -> Any:
    tokens = joined(rows)
    return ({"input_ids": tokens[first : first + 4]} for first in range(0, len(tokens), 4))


def as_columns(rows: Any) -> Any:
    return {"input_ids": np.array(joined(rows)).reshape(2, 3)}


def without_the_rest(rows: Any) -> Any:
    return [row for row in in_blocks(rows) if len(row["input_ids"]) == 4]


@pytest.mark.parametrize("function", [in_blocks, as_columns])
def test_functions_of_lists_of_dicts_are_held_to_it_too(function: Any):
    assert_conserves_tokens(function, DOCUMENTS)


def test_a_function_of_lists_that_loses_tokens_is_caught():
    with pytest.raises(AssertionError, match=r"^without_the_rest conserves tokens, but it lost \{5: 1, 6: 1\} \(token: count\)$"):
        assert_conserves_tokens(without_the_rest, DOCUMENTS)
