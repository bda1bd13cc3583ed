"""The law of tokenizing: a chunk's ids are those of the tokenizer itself, token for token."""

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tokenizers as hf
from hypothesis import example, given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.arrow.ragged import Ragged
from mlxfp.core.chunks import RecordBatch, number_rows
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, SchemaError, UnknownNameError
from mlxfp.testing import laws
from mlxfp.text.encoding.encoding import encode_chunk
from mlxfp.text.tokenizing import Truncation, tokenize
from tests.text.configurations import known
from tests.text.corpora import TEXTS, framings, stage_of, trained

Rows = list[tuple[str, str]]
Ids = list[tuple[list[int], list[int] | None]]


def reference(tokenizer: fp.Tokenizer, rows: Rows, *, pair: bool, max_length: int | None, side: str, special: bool) -> Ids:
    """Encode row by row with the tokenizer's own truncation."""
    own = hf.Tokenizer.from_str(tokenizer.json)
    if max_length is not None:
        own.enable_truncation(max_length, strategy="longest_first", direction=side)
    encodings = [own.encode(first, second if pair else None, add_special_tokens=special) for first, second in rows]
    return [(encoding.ids, encoding.type_ids if pair else None) for encoding in encodings]


def ids_of(chunk: RecordBatch) -> Ids:
    ids = chunk["input_ids"].to_pylist()
    types = chunk["token_type_ids"].to_pylist() if "token_type_ids" in chunk.schema.names else [None] * len(ids)
    return list(zip(ids, types, strict=True))


def assert_tokenizes_alike(apply: Callable[[RecordBatch], RecordBatch], rows: Rows, expected: Ids) -> None:
    """Law: tokenizing a chunk equals encoding each row."""
    chunk = pa.record_batch({"text": pa.array([a for a, _ in rows], pa.string()), "other": pa.array([b for _, b in rows], pa.string())})
    found = apply(chunk)
    assert found["input_ids"].type == pa.list_(pa.int32())
    assert ids_of(found) == expected


@example(place=0, rows=[("a class", "a class")], times=1, pair=True, max_length=6, side="right", special=True)  # a tie, and an odd room
@example(place=7, rows=[("a class", "")], times=1, pair=False, max_length=None, side="right", special=False)  # writes the text twice
@example(place=7, rows=[("a class", "")], times=9, pair=False, max_length=None, side="right", special=False)
@given(
    place=st.integers(0, 8),
    rows=st.lists(st.tuples(TEXTS, TEXTS), max_size=5),
    times=st.sampled_from([1, 3]),
    pair=st.booleans(),
    max_length=st.none() | st.integers(5, 24),
    side=st.sampled_from(["right", "left"]),
    special=st.booleans(),
)
def test_a_chunk_is_tokenized_as_the_tokenizer_does_each_row(
    place: int, rows: Rows, times: int, *, pair: bool, max_length: int | None, side: Truncation, special: bool
) -> None:
    tokenizer, rows = framings()[place], rows * times  # few rows are encoded as lists, more as arrays
    expected = reference(tokenizer, rows, pair=pair, max_length=max_length, side=side, special=special)
    truncation: Truncation = side if max_length is not None else "right"
    stage = tokenize(tokenizer, pair="other" if pair else None, max_length=max_length, truncation=truncation, special=special)
    assert_tokenizes_alike(stage_of(stage).apply, rows, expected)


@given(st.sampled_from(["wordpiece", "bpe", "unigram"]), st.lists(TEXTS, max_size=6))
def test_a_chunk_is_encoded_as_each_text(kind: Any, texts: list[str]):
    tokenizer = trained(kind)
    for column in (pa.array(texts, pa.string()), pa.array(texts, pa.large_string())):
        assert encode_chunk(tokenizer, column).to_pylist() == [tokenizer.encode(text, special=False) for text in texts]


@pytest.mark.parametrize("name", ["bert-base-uncased", "gpt2"])
@pytest.mark.parametrize("max_length", [None, 16])
def test_real_tokenizers_are_followed_token_for_token(data_folder: Path, name: str, max_length: int | None):
    tokenizer = fp.load_tokenizer(data_folder / "tokenizers" / name)
    lines = (data_folder / "wikitext2/valid.txt").read_text("utf-8").splitlines()[:400]
    rows = list(zip(lines, reversed(lines), strict=True))
    for pair in (False, True):
        expected = reference(tokenizer, rows, pair=pair, max_length=max_length, side="right", special=True)
        stage = tokenize(tokenizer, pair="other" if pair else None, max_length=max_length)
        assert_tokenizes_alike(stage_of(stage).apply, rows, expected)


def _forget_special(rows: Ragged, kept: Any, side: str) -> Ragged:
    return Ragged(rows.values, rows.starts, np.minimum(kept + 1, rows.lengths))


def _always_right(rows: Ragged, kept: Any, side: str) -> Ragged:
    return Ragged(rows.values, rows.starts, kept)


def _second_first(lengths: Any, room: int) -> Any:
    if len(lengths) == 1:
        return (np.minimum(lengths[0], room),)
    second = np.clip(room - lengths[0], 0, lengths[1])
    return np.minimum(lengths[0], room), second


@pytest.mark.parametrize(("name", "broken"), [("cut", _forget_special), ("cut", _always_right), ("fit", _second_first)])
def test_the_law_catches_truncation_that_is_off(monkeypatch: pytest.MonkeyPatch, name: str, broken: Any):
    rows = [("year old male in class", "a paid class in the year old"), ("in", "male")]
    tokenizer = trained("wordpiece")
    expected = reference(tokenizer, rows, pair=True, max_length=7, side="left", special=True)
    stage = stage_of(tokenize(tokenizer, pair="other", max_length=7, truncation="left"))
    assert_tokenizes_alike(stage.apply, rows, expected)
    monkeypatch.setattr(f"mlxfp.text.tokenizing.{name}", broken)
    with pytest.raises(AssertionError):
        assert_tokenizes_alike(stage.apply, rows, expected)


def test_the_law_catches_a_text_that_lost_its_special_tokens():
    rows = [("in class", "")]
    expected = reference(trained("bpe"), rows, pair=False, max_length=None, side="right", special=True)
    with pytest.raises(AssertionError):
        assert_tokenizes_alike(stage_of(tokenize(trained("bpe"), special=False)).apply, rows, expected)


def test_a_row_has_its_tokens_and_its_other_columns():
    tokenizer = trained("wordpiece")
    (row,) = fp.pipe(fp.from_examples([{"text": "in class 3", "label": 1}]), tokenize(tokenizer))
    assert row["label"] == 1
    assert tokenizer.tokens(row["input_ids"]) == ["[CLS]", "in", "class", "3", "[SEP]"]


def test_a_pair_says_which_ids_belong_to_which_text():
    tokenizer = trained("wordpiece")
    (row,) = fp.pipe(fp.from_examples([{"text": "in class", "reply": "male"}]), tokenize(tokenizer, pair="reply"))
    assert tokenizer.tokens(row["input_ids"]) == ["[CLS]", "in", "class", "[SEP]", "male", "[SEP]"]
    assert row["token_type_ids"] == [0, 0, 0, 0, 1, 1]
    assert (row["input_ids"], row["token_type_ids"]) == tokenizer.encode_pair("in class", "male")


def test_text_in_dictionary_and_view_columns_is_text_too():
    tokenizer = trained("bpe")
    texts = pa.array(["in class", "male", "in class"])
    expected = [tokenizer.encode(text) for text in texts.to_pylist()]
    for column in (texts.dictionary_encode(), texts.cast(pa.string_view()), texts.cast(pa.large_string())):
        chunk = pa.record_batch({"text": column})
        stage = stage_of(tokenize(tokenizer))
        assert stage.schema(chunk.schema).names == ["text", "input_ids"]
        assert stage.apply(chunk)["input_ids"].to_pylist() == expected


def test_stages_are_values():
    stage = tokenize(trained("bpe"), pair="b", max_length=9, truncation="left")
    copy = pickle.loads(pickle.dumps(stage))
    assert copy == stage
    assert (hash(copy), fp.inspect.fingerprint(copy)) == (hash(stage), fp.inspect.fingerprint(stage))
    assert tokenize(trained("bpe"), into="ids") == tokenize(trained("bpe"), into="ids")
    assert tokenize(trained("bpe")) != tokenize(trained("unigram"))
    assert repr(tokenize(trained("bpe"), max_length=9)) == "tokenize(tokenizer=Tokenizer(BPE, vocab_size=300), max_length=9)"


def test_threads_with_other_lengths_do_not_disturb_each_other():
    tokenizer = trained("bpe")
    chunk = pa.record_batch({"text": ["a 22 year old male travelling in class"] * 200})
    stages = [stage_of(tokenize(tokenizer, max_length=length)) for length in range(3, 11)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda stage: stage.apply(chunk), stages * 4))
    assert [out["input_ids"].to_pylist() for out in found] == [stage.apply(chunk)["input_ids"].to_pylist() for stage in stages * 4]


def test_a_missing_text_is_named_with_its_row():
    chunk = number_rows(pa.record_batch({"text": ["in", None]}), 0, 40)
    with pytest.raises(
        DataError,
        match=r"tokenize needs a text in each row of column 'text', but the text of source row 41 is missing\. To fill missing texts, "
        r"put this stage before: fp\.map\(lambda row: \{\*\*row, 'text': row\['text'\] or ''\}\)\.",
    ):
        stage_of(tokenize(trained("bpe"))).apply(chunk)


def test_a_row_that_is_too_long_is_named_where_cutting_is_refused():
    chunk = number_rows(pa.record_batch({"text": ["in", "in class in class"]}), 0, 7)
    stage = stage_of(tokenize(trained("wordpiece"), max_length=5, truncation="error"))
    with pytest.raises(DataError, match=r"tokenize gave 6 ids for source row 8, above max_length=5\. Choose truncation="):
        stage.apply(chunk)
    assert stage.apply(chunk.slice(0, 1)).num_rows == 1


def test_columns_are_checked_before_any_row():
    rows = fp.from_examples([{"text": 5, "label": "x"}])
    with pytest.raises(SchemaError, match=r"tokenize needs text in column 'text', got int64\. Convert values to text with template first"):
        _ = fp.pipe(rows, tokenize(trained("bpe"))).resolved
    with pytest.raises(
        SchemaError,
        match=r"needs the column 'body', .* Columns: 'text', 'label'\. To read another column, write for example column='label'\.",
    ):
        _ = fp.pipe(rows, tokenize(trained("bpe"), column="body")).resolved
    with pytest.raises(SchemaError, match=r"tokenize needs the column 'reply', which is missing\. Columns: 'text', 'label'\.\n"):
        _ = fp.pipe(rows, tokenize(trained("bpe"), column="label", pair="reply")).resolved


def test_arguments_that_cannot_work_are_refused_at_once():
    tokenizer = trained("bpe")
    with pytest.raises(ArgumentTypeError, match=r"tokenizer must be Tokenizer, got str: 'bert-base-uncased'\. Pass fp\.load_tokenizer"):
        tokenize("bert-base-uncased")  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(ArgumentError, match="max_length=2 leaves no room for text next to the 2 special tokens"):
        tokenize(tokenizer, max_length=2)
    with pytest.raises(ArgumentError, match="max_length=3 leaves no room for text next to the 3 special tokens"):
        tokenize(tokenizer, pair="b", max_length=3)
    with pytest.raises(ArgumentError, match="max_length must be at least 1"):
        tokenize(tokenizer, max_length=0, special=False)
    with pytest.raises(ArgumentError, match="truncation='left' has no effect without max_length"):
        tokenize(tokenizer, truncation="left")
    with pytest.raises(UnknownNameError, match="No truncation is named 'middle'"):
        tokenize(tokenizer, max_length=9, truncation="middle")  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(ArgumentError, match="into='token_type_ids' is empty or a reserved column name"):
        tokenize(tokenizer, into="token_type_ids")


def test_tokenizers_of_other_libraries_are_told_how_they_are_read(tmp_path):
    class Pretrained:
        def save_pretrained(self, folder: str) -> None: ...

    raw = hf.Tokenizer(hf.models.WordLevel({"a": 0}))
    for call in (tokenize, fp.load_tokenizer):
        with pytest.raises(ArgumentTypeError, match=r'Save and load the tokenizer: tokenizer\.save\("tokenizer.json"\), then fp\.load'):
            call(raw)  # type: ignore[arg-type]  # the mistake
        with pytest.raises(ArgumentTypeError, match=r'tokenizer\.save_pretrained\("folder"\), then fp\.load_tokenizer\("folder"\)'):
            call(Pretrained())  # type: ignore[arg-type]  # the mistake
    raw.save(str(tmp_path / "tokenizer.json"))  # as they say
    assert fp.load_tokenizer(tmp_path / "tokenizer.json").vocab_size == 1


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
