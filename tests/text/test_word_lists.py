"""Columns of lists of words: their tokens are those of the joined text, and each has the number of its word."""

import pyarrow as pa
import pytest
import tokenizers as hf
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import DataError, SchemaError
from mlxfp.testing import laws
from tests.text.configurations import known
from tests.text.corpora import stage_of, trained

WORDS = st.lists(st.sampled_from(["a", "class", "café", "U.S.", "漢字", "don't", "[SEP]", "x😀", "female"]), max_size=6)


@given(st.lists(WORDS, min_size=1, max_size=4), st.none() | st.integers(4, 9), st.sampled_from(["right", "left"]))
def test_tokens_and_their_words_are_those_of_the_package_for_lists_of_words(rows, max_length, side):
    tokenizer = trained("wordpiece")
    own = hf.Tokenizer.from_str(tokenizer.json)
    cutting = {} if max_length is None else {"max_length": max_length, "truncation": side}
    if max_length is not None:
        own.enable_truncation(max_length, direction=side)
    found = stage_of(fp.tokenize(tokenizer, column="words", **cutting)).apply(
        pa.record_batch({"words": pa.array(rows, pa.list_(pa.string()))})
    )
    for row, encoding in zip(found.to_pylist(), (own.encode(words, is_pretokenized=True) for words in rows), strict=True):
        assert row["input_ids"] == encoding.ids
        assert row["word_ids"] == [-1 if word is None else word for word in encoding.word_ids]


@pytest.mark.parametrize("name", ["gpt2", "t5", "llama2"])
@given(WORDS)
def test_the_text_of_a_token_lies_in_its_word(name, words):
    stage = fp.tokenize(known()[name], column="words", offsets=True)
    (row,) = fp.pipe(fp.from_table({"words": pa.array([words], pa.list_(pa.string()))}), stage)
    (joined,) = fp.pipe(fp.from_examples([{"text": " ".join(words)}]), fp.tokenize(known()[name], offsets=True))
    assert {name: row[name] for name in joined if name != "text"} == {name: joined[name] for name in joined if name != "text"}
    text = " ".join(words)
    for start, end, word in zip(row["token_starts"], row["token_ends"], row["word_ids"], strict=True):
        assert word == -1 or text[start:end].strip(" ") in words[word]


def test_pieces_of_long_rows_keep_the_numbers_of_their_words():
    tokenizer, words = trained("wordpiece"), ["class", "a", "female", "in", "class"]
    rows = list(fp.pipe(fp.from_examples([{"words": words}]), fp.tokenize(tokenizer, column="words", max_length=4, stride=1)))
    own = hf.Tokenizer.from_str(tokenizer.json)
    own.enable_truncation(4, stride=1)
    encoding = own.encode(words, is_pretokenized=True)
    expected = [[-1 if word is None else word for word in piece.word_ids] for piece in (encoding, *encoding.overflowing)]
    assert [row["word_ids"] for row in rows] == expected


def test_word_numbers_are_a_part_of_the_stage():
    rows = [{"words": ["a", "class"]}, {"words": []}, {"words": ["", "female", ""]}]
    dataset = fp.pipe(fp.from_examples(rows), fp.tokenize(trained("bpe"), column="words"))
    assert dataset.resolved.schemas[-1].names == ["words", "input_ids", "word_ids"]
    laws.assert_resumable(dataset)


def test_words_that_cannot_be_are_refused():
    rows = fp.from_table({"words": pa.array([["a"], ["b", None]]), "other": ["x", "y"]})
    with pytest.raises(DataError, match="column 'words' of source row 1 holds a null in its list"):
        list(fp.pipe(rows, fp.tokenize(trained("bpe"), column="words")))
    with pytest.raises(SchemaError, match="with pair= needs text columns, got lists of words in column 'words'"):
        list(fp.pipe(rows, fp.tokenize(trained("bpe"), column="words", pair="other")))
    with pytest.raises(SchemaError, match=r"needs text in column 'ids', got list<.*int64>"):
        list(fp.pipe(fp.from_table({"ids": [[1]]}), fp.tokenize(trained("bpe"), column="ids")))
