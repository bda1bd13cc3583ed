"""Words are the text, cut; nothing is lost and nothing is added."""

import numpy as np
import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

from mlxfp.text.encoding.boundary_rules import cut_words, find_rule, text_offsets
from tests.text.configurations import HURTFUL, known

KNOWN = known()


@given(name=st.sampled_from(list(KNOWN)), texts=st.lists(HURTFUL, max_size=8), skipped=st.integers(0, 2))
def test_the_words_of_each_row_are_its_text(name: str, texts: list[str], skipped: int):
    assume(any(texts))
    rule = find_rule(KNOWN[name].json)
    assert rule is not None
    words = cut_words(rule, pa.array(["x y"] * skipped + texts, pa.string())[skipped:])
    distinct = words.distinct.to_pylist()
    assert len(set(distinct)) == len(distinct)
    rows = [[distinct[place] for place in words.indices[first:end]] for first, end in zip(words.firsts[:-1], words.firsts[1:], strict=True)]
    assert ["".join(row) for row in rows] == texts
    assert all(row for row, text in zip(rows, texts, strict=True) if text)
    assert words.size == sum(len(text.encode()) for text in texts)
    for place, row in enumerate(rows):
        for word in row:
            at = np.flatnonzero(words.indices == distinct.index(word))
            assert place in words.rows(at)


def test_bert_cuts_punctuation_off_and_gpt2_keeps_the_space():
    texts = pa.array(["It's (an) x-ray,  or not."])
    cut = {
        name: cut_words(rule, texts).distinct.to_pylist()
        for name in ("bert", "gpt2", "llama3", "t5")
        if (rule := find_rule(KNOWN[name].json))
    }
    assert cut["bert"] == ["It", "'", "s", " (", "an", ")", " x", "-", "ray", ",", "  or", " not", "."]
    assert cut["gpt2"] == ["It", "'s", " (", "an", ")", " x", "-", "ray", ",", "  or", " not", "."]
    assert cut["llama3"] == ["It's", " (an", ")", " x", "-ray", ",", "  or", " not", "."]
    assert cut["t5"] == ["It's", " (an)", " x-ray,", "  or", " not."]


def test_offsets_are_those_of_the_slice():
    for kind in (pa.string(), pa.large_string()):
        assert text_offsets(pa.array(["ab", "c", "", "def"], kind)[1:]).tolist() == [2, 3, 3, 6]
