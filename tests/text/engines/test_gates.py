"""Which texts an engine may encode."""

from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fuzz_tokens import to_ranges
from mlxfp.text.engines.cleared import CODES, read_ranges, to_table
from mlxfp.text.engines.gates import make_gate

TOKENS = ("[MASK]", "<|end|>", "漢x", "(a|b)")
LETTERS = st.sampled_from(["a", "[", "]", "MASK", "<|", "end", "|>", "é", "漢", "x", "\U0001f600", "\u0301", "\0", "(a|b)", *TOKENS])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@given(
    texts=st.lists(st.lists(LETTERS, max_size=5).map("".join) | st.text(max_size=5), min_size=1, max_size=6),
    cleared=st.sets(st.sampled_from("a[]MASKend<|>é漢x\U0001f600\u0301\0()b")),
    piece=st.sampled_from([1, 8, 1 << 21]),
)
def test_texts_of_cleared_characters_without_an_added_token_pass(kind, texts, cleared, piece):
    table = np.zeros(CODES, bool)
    table[[ord(letter) for letter in cleared]] = True
    gate = make_gate(table, [{"content": token} for token in TOKENS])
    column = pa.array(["left out", *texts, "漢漢"], kind)[1:-1]
    expected = [place for place, text in enumerate(texts) if not set(text) <= cleared or any(token in text for token in TOKENS)]
    with patch("mlxfp.text.engines.gates._PIECE", piece):
        assert gate.closed(column).tolist() == expected


def test_without_added_tokens_all_texts_of_cleared_characters_pass():
    gate = make_gate(np.ones(CODES, bool), [])
    assert gate.closed(pa.array(["", "a", "漢"])).tolist() == []
    assert gate.closed(pa.array([""], pa.string())).tolist() == []


@given(st.sets(st.integers(0, 300) | st.integers(0, CODES - 1), max_size=30))
def test_ranges_are_read_back(codes):
    ordered = sorted(codes)
    text = to_ranges(ordered)
    assert [code for part in read_ranges(text) for code in part] == ordered
    assert np.flatnonzero(to_table(read_ranges(text))).tolist() == ordered
