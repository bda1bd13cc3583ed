from typing import Any

import pytest
from hypothesis import given

from mlxfp.data.lengths.bucketing import batch_by_tokens, bucket_by_length
from mlxfp.data.lengths.packing import pack
from mlxfp.data.lengths.windowing import windows
from mlxfp.testing.laws import assert_conserves_tokens
from mlxfp.testing.probing import from_chunks
from tests.data.token_rows import Chunks, chunkings, numbered

STAGES = [pack(5), pack(5, method="first_fit"), pack(5, method="split"), windows(4), batch_by_tokens(20), bucket_by_length([3, 12], size=2)]


@pytest.mark.parametrize("stage", STAGES, ids=repr)
@given(chunkings())
def test_tokens_are_conserved(stage: Any, cut: tuple[Chunks, Chunks]):
    assert_conserves_tokens(stage, from_chunks(cut[0]), epoch=1)


@pytest.mark.parametrize(
    ("stage", "wrong"),
    [(windows(4, drop_last=True), r"lost \{4: 1\}"), (windows(4, stride=3), r"added \{3: 1\}")],
    ids=["lost", "doubled"],
)
def test_the_law_catches_tokens_that_are_lost_or_doubled(stage: Any, wrong: str):
    with pytest.raises(AssertionError, match=wrong):
        assert_conserves_tokens(stage, from_chunks(numbered([5]).to_batches()))
